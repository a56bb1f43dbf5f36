"""Subwords and characters through everything that takes a model."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from dcnn import DCNNClassifier
from dcnn import artifact as model_folder
from dcnn.data.labels import number_labels
from dcnn.errors import ConfigError, ModelFolderError
from dcnn.export import export
from dcnn.inspection import explain, rank_detectors
from dcnn.predictor import Predictor
from dcnn.tuning.space import FolderSizes

TEXTS = [
    f"{how} {what}" for how in ("unbearable", "enjoyable") for what in ["play", "film", "book"]
]
LABELS = ["bad"] * 3 + ["good"] * 3
SMALL = {"dim": 8, "widths": [4, 3], "maps": [2, 3], "k_top": 3, "epochs": 1, "n_subwords": 40}
TOKENIZERS = ("bpe", "unigram", "characters")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("tokens")
    for name in TOKENIZERS:
        model = DCNNClassifier(tokenizer=name, dev_fraction=0.34, **SMALL).fit(TEXTS, LABELS)
        model.save(place / name)
    return place


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_model_folder_holds_all_that_prediction_needs(folders, name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    predictor = Predictor.load(folders / name)
    before = predictor.predict(TEXTS)
    exported = export(predictor, tmp_path / "small", dtype="float16")
    assert [p.label for p in Predictor.load(exported.path).predict(TEXTS)] == [
        p.label for p in before
    ]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_an_explanation_shows_spells_the_text(folders, name):
    found = explain(Predictor.load(folders / name), "Unbearable films!")
    shown = found.described_words()
    text = "".join(word.spelled for word in shown).strip()
    assert text == ("unbearable films!" if name == "characters" else "unbearable films !")
    assert [word.word for word in shown] == list(found.words)
    assert not any(character.isspace() for word in found.words for character in word)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_detectors_are_ranked_and_found_by_their_tokens(folders, name):
    index = rank_detectors(Predictor.load(folders / name), TEXTS, top=2)
    tokenize = index.predictor.artifact.encoder.tokenizer
    tokens = {token for text in TEXTS for token in tokenize(text)}  # rare ones are shown as well
    for detection in index.top(index.detectors[0]):
        assert set(detection.words) <= tokens
    assert len(index.find("play")) <= len(index.detectors)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_onnx_file_takes_their_ids(folders, name, tmp_path):
    pytest.importorskip("onnxruntime")
    written = export(Predictor.load(folders / name), tmp_path / "model.onnx")
    assert written.path.stat().st_size > 0


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_size_of_a_folder_is_known_beforehand(folders, name):
    artifact = model_folder.load(folders / name)
    sizes = FolderSizes("m", number_labels(TEXTS, LABELS))
    learned = model_folder.folder_size("m", replace(artifact, metadata={}))
    assert learned - 3000 < sizes.of(artifact.config) - 4096 < learned + 3000


def test_a_damaged_list_of_subwords_is_refused_with_its_file(folders, tmp_path):
    shutil.copytree(folders / "bpe", tmp_path / "bpe")
    file = tmp_path / "bpe" / "tokenizer.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"merges": ["cut sho rt"]}))
    with pytest.raises(ModelFolderError, match=r"tokenizer.json is damaged: merges: 'cut sho rt'"):
        Predictor.load(tmp_path / "bpe")


def test_vectors_of_words_do_not_go_with_other_tokens():
    with pytest.raises(ConfigError, match=r"vectors='glove.txt' are of words, and tokenizer='bpe'"):
        DCNNClassifier(tokenizer="bpe", vectors="glove.txt").fit(TEXTS, LABELS)
