import io
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from dcnn import artifact as model_folder
from dcnn.cli.explain import print_explanation
from dcnn.config import NBoWConfig
from dcnn.inspection import explain
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from untrained import make_artifact

TEXT = "The plot is not dull"


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact(classes=("bad", "[b]good")))
    return "model"


def test_label_words_ngrams_and_deletions_are_printed(dcnn, tmp_path, model):
    done = dcnn("explain", model, TEXT)
    assert (done.code, done.err) == (0, "")
    found = explain(Predictor.load(tmp_path / model), TEXT)
    answer, _, sentence, total, *rest = done.out.splitlines()
    for label, probability in found.prediction.ranked:
        assert f"{label} {probability:.4f}" in answer
    words = zip(found.words, found.attributions, strict=True)
    assert sentence == " ".join(f"{word}({attribution:+.2f})" for word, attribution in words)
    assert f"logit {found.logit:+.2f} = words" in total
    assert f"  {found.ngrams[0].attribution:+.2f}  {found.ngrams[0]}" in rest
    for change in found.changes:
        assert f"without '{change.word}' (word {change.position + 1}): {change.label}" in done.out
    assert ("No single deletion" in done.out) == (not found.changes)


def test_a_terminal_gets_colours_instead_of_numbers(tmp_path, model):
    found = explain(Predictor.load(tmp_path / model), TEXT)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="truecolor", markup=False)
    print_explanation(console, found)
    printed = stream.getvalue()
    strongest = max(range(len(found.words)), key=lambda i: abs(found.attributions[i]))
    colour = "31;111;180" if found.attributions[strongest] > 0 else "209;73;91"
    assert f"48;2;{colour}m {found.words[strongest]} " in printed
    assert f"({found.attributions[strongest]:+.2f})" not in printed


@pytest.mark.parametrize("terminal", [{"color_system": "standard"}, {"no_color": True}])
def test_a_terminal_without_shades_gets_numbers(tmp_path, model, terminal):
    found = explain(Predictor.load(tmp_path / model), TEXT)
    stream = io.StringIO()
    print_explanation(Console(file=stream, force_terminal=True, markup=False, **terminal), found)
    assert f"{found.words[0]}({found.attributions[0]:+.2f})" in stream.getvalue()


def test_control_characters_do_not_reach_the_terminal(dcnn, tmp_path):
    artifact = make_artifact(classes=("bad", "good"))
    tokens = replace(artifact.config.text, tokenizer="whitespace")
    encoder = Encoder.learn(["the plot is bad"], tokens)[0]
    shape = (len(encoder.vocabulary), artifact.config.model.dim)
    weights = artifact.weights | {"embeddings": np.ones(shape, np.float32)}
    config = replace(artifact.config, text=tokens)
    changed = replace(artifact, config=config, encoder=encoder, weights=weights)
    model_folder.save(tmp_path / "steering", changed)
    for command in ("explain", "predict"):
        done = dcnn(command, "steering", "the \x1b]0;title\x07 plot \x9b31m")
        assert done.code == 0
        assert not {"\x1b", "\x07", "\x9b"}.intersection(done.out)


def test_many_deletions_are_cut_short(tmp_path, model):
    found = explain(Predictor.load(tmp_path / model), TEXT)
    (some, *_) = found.deletions
    vars(found)["deletions"] = (replace(some, changes=True),) * 14
    stream = io.StringIO()
    print_explanation(Console(file=stream), found)
    assert stream.getvalue().count("without") == 10
    assert "and 4 other words" in stream.getvalue()
    every = io.StringIO()
    print_explanation(Console(file=every), found, everything=True)
    assert every.getvalue().count("without") == 14


def test_of_many_classes_the_most_probable_are_printed(dcnn, tmp_path):
    classes = [f"class-{number}" for number in range(40)]
    model_folder.save(tmp_path / "many", make_artifact(classes=classes))
    found = explain(Predictor.load(tmp_path / "many"), TEXT).prediction.ranked
    answer = dcnn("explain", "many", TEXT).out.splitlines()[0]
    listed = "   ".join(f"{label} {share:.4f}" for label, share in found[:5])
    assert answer == f"{listed}   35 others {sum(share for _, share in found[5:]):.4f}"
    every = " ".join(dcnn("explain", "many", TEXT, "--all").out.split("\n\n")[0].split())
    assert every == " ".join(f"{label} {share:.4f}" for label, share in found)


def test_replacements_that_change_the_label_are_printed(dcnn, tmp_path, model):
    found = explain(Predictor.load(tmp_path / model), TEXT)
    changing = [one for one in found.replacements if one.changes]
    assert len(changing) > 3
    printed = dcnn("explain", model, TEXT).out
    for one in changing[:3]:
        place = f"(word {one.position + 1}): {one.label} {one.probability:.4f}"
        assert f"  {one.replacement!r} for {one.word!r} {place}\n" in printed
    assert printed.count(" for '") == 3


def test_single_nodes_are_drawn_on_request(dcnn, tmp_path, model):
    dcnn("explain", model, TEXT, "--out", "nodes.svg", "--nodes", 4)
    svg = (tmp_path / "nodes.svg").read_text()
    assert "The 4 strongest nodes" in svg
    assert "<circle" in svg
    dcnn("explain", model, TEXT, "--out", "ngrams.svg")
    assert "<circle" not in (tmp_path / "ngrams.svg").read_text()


def test_words_that_the_model_does_not_know_are_named(dcnn, model):
    assert (
        "Not in the vocabulary: xyzzy, plugh\n" in dcnn("explain", model, "xyzzy plugh xyzzy").out
    )
    assert "vocabulary" not in dcnn("explain", model, TEXT).out


def test_json_tells_the_same_to_programs(dcnn, tmp_path, model):
    done = dcnn("explain", model, TEXT, "--json", "--class", "bad", "--out", "graph.svg")
    values = json.loads(done.out)
    found = explain(Predictor.load(tmp_path / model), TEXT, "bad")
    assert values == json.loads(json.dumps(found.to_dict()))
    assert values["class"] == "bad"
    assert (tmp_path / "graph.svg").exists()


@pytest.mark.parametrize(
    ("ending", "start"),
    [
        ("svg", b"<svg"),
        ("png", b"\x89PNG"),
        ("html", b"<!doctype html>"),
        ("json", b'{"directed": true'),
        ("graphml", b"<?xml"),
    ],
)
def test_the_graph_is_written_in_the_format_of_the_ending(dcnn, tmp_path, model, ending, start):
    done = dcnn("explain", model, TEXT, "--out", f"graph.{ending}")
    assert (done.code, done.err) == (0, "")
    assert f"The graph is in graph.{ending}." in done.out
    assert (tmp_path / f"graph.{ending}").read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone", TEXT), "gone: no such model folder"),
        (("model", ""), "the text has no words"),
        (("model", TEXT, "--class", "great"), "no class 'great'; its classes are bad, [b]good"),
        (("gone", TEXT, "--out", "graph.pdf"), ".svg, .png, .html, .json, .graphml"),
        (("gone", TEXT, "--out", "no/such/graph.svg"), "there is no folder no/such; create it"),
        (("gone", TEXT, "--out", "folder.svg"), "--out folder.svg is a folder; name a file"),
        (("model", TEXT, "--nodes", 3), "--nodes 3 chooses what a picture shows; add --out"),
        (("model", TEXT, "--nodes", 3, "--out", "g.json"), "add --out FILE.svg or .png"),
        (("bag", TEXT), "the model is of the kind nbow, which has no feature graph"),
    ],
)
def test_mistakes_get_one_sentence(dcnn, tmp_path, model, arguments, message):
    model_folder.save(tmp_path / "bag", make_artifact(NBoWConfig(dim=5)))
    (tmp_path / "folder.svg").mkdir()
    done = dcnn("explain", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_answer_that_cannot_be_printed_is_an_error(tmp_path, model):
    done = subprocess.run(
        f"{sys.executable} -m dcnn explain {model} dull --json >&-",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr[:32]) == (2, "dcnn: standard output is closed;")
