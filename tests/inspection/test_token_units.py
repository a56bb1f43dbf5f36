"""A model that reads characters or subwords is not said to read words."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from dcnn import artifact as model_folder
from dcnn.cli.detectors import detectors
from dcnn.cli.explain import print_explanation
from dcnn.errors import UserError
from dcnn.inspection import explain, rank_detectors, render
from dcnn.inspection.detectors import SelectedDetector
from dcnn.inspection.explanation import MOST_WORDS
from dcnn.inspection.render import to_html
from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.models import ServedModel
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import GAP, SubwordTokenizer, Tokenizer
from dcnn.text.vocabulary import Vocabulary
from untrained import make_artifact

TEXT = "bad plot, lot"
ENCODERS = {
    "character": Encoder(Tokenizer("characters"), Vocabulary([*"abdlopt", GAP])),
    "subword": Encoder(
        SubwordTokenizer("bpe", True, (("l", "o"), ("b", "a"))),
        Vocabulary(["p", "ba", "lo", "##d", "##lo", "##t"]),
    ),
    "word": Encoder(Tokenizer("words"), Vocabulary(["bad", "plot", "lot"])),
}


@pytest.fixture(params=ENCODERS)
def unit(request) -> str:
    return request.param


@pytest.fixture
def predictor(unit) -> Predictor:
    artifact, encoder = make_artifact(), ENCODERS[unit]
    embeddings = artifact.weights["embeddings"][: len(encoder.vocabulary)]
    weights = artifact.weights | {"embeddings": embeddings}
    return Predictor(replace(artifact, encoder=encoder, weights=weights))


def seen(page: str) -> str:
    """What a reader sees of a page, tooltips included."""
    page = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", "\n", page)


def check(shown: str, unit: str) -> None:
    """The unit is named, and no other is."""
    named = set(re.findall(r"\b(word|subword|character)s?\b", shown, re.IGNORECASE))
    assert {name.lower() for name in named} == {unit}, shown


def test_an_explanation_names_the_unit(unit, predictor):
    found = explain(predictor, TEXT)
    # As if every deletion changed the label, more of them than are shown.
    changed = [replace(deletion, changes=True) for deletion in found.deletions]
    console = Console(file=io.StringIO(), width=1000)
    vars(found)["deletions"] = tuple(changed * 12)
    print_explanation(console, found)
    printed = console.file.getvalue()
    check(printed, unit)
    for part in (f"= {unit}s ", f"Deleting one {unit} changes", f"({unit} 1)", f"other {unit}s;"):
        assert part in printed


def test_a_picture_names_the_unit(unit, predictor):
    found = explain(predictor, " ".join([TEXT] * 15))
    shown = seen(to_html(found.trace, found.of_class))
    check(shown, unit)
    for part in (f"\n{unit}s\n", f"at {unit}s:", f"{unit}s left out", f"Point at a {unit} "):
        assert part in shown


def test_detectors_name_the_unit(unit, predictor, tmp_path, capsys):
    index = rank_detectors(predictor, [TEXT])
    chosen = [SelectedDetector(index.detectors[0])]
    page = render.report_html(index, chosen)
    assert f"Search names, {unit}s," in page
    check(seen(page), unit)
    check(render.report_markdown(index, chosen), unit)
    assert index.name(index.detectors[0]) == f"no distinctive {unit}"
    model_folder.save(tmp_path / "m", predictor.artifact)
    (tmp_path / "corpus.txt").write_text(TEXT)
    detectors(tmp_path / "m", tmp_path / "corpus.txt")
    check(capsys.readouterr().out.replace("--find WORD", ""), unit)


def test_errors_name_the_unit(unit, predictor):
    long = f"{TEXT} " * MOST_WORDS
    with pytest.raises(UserError, match=rf"the text has [0-9,]+ {unit}s, too many for a graph"):
        explain(predictor, long)
    with pytest.raises(UserError, match=f"has more than 1,000 {unit}s, too many for layers"):
        rank_detectors(predictor, [long], layers=[2])
    with pytest.raises(UserError, match=f"not know the {unit} 'q', .* other unknown {unit}s;"):
        rank_detectors(predictor, [TEXT]).find("q")
    with pytest.raises(UserError, match=rf"[0-9,]+ {unit}s are too many to explain"):
        ServedModel("m", predictor).check_words([long], Limits())
