import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dcnn import artifact as model_folder
from dcnn.cli.detectors import detectors
from dcnn.config import NBoWConfig
from dcnn.errors import UserError
from dcnn.inspection import rank_detectors
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from untrained import VOCABULARY_TEXT, make_artifact

CORPUS = "corpus.csv"


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact(classes=("bad", "[b]good")))
    return "model"


@pytest.fixture
def texts(tmp_path):
    generator = np.random.default_rng(0)
    words = VOCABULARY_TEXT.replace(",", "").split()
    texts = [" ".join(generator.choice(words, 7)) for _ in range(60)]
    lines = [f"{number},{text}\n" for number, text in enumerate(texts)]
    (tmp_path / CORPUS).write_text("id,text\n" + "".join(lines))
    return texts


def test_a_few_detectors_are_printed_with_their_ngrams(dcnn, tmp_path, model, texts):
    done = dcnn("detectors", model, "--corpus", CORPUS, "--text-column", "text")
    assert (done.code, done.err) == (0, "")
    index = rank_detectors(Predictor.load(tmp_path / model), texts)
    assert "60 sentences, 420 words in all, shown to 22 detectors." in done.out
    assert "Shown: 10 of 22" in done.out
    assert "--limit 22" in done.out
    first = index.by_distinctiveness()[0]
    assert str(first) in done.out
    for found in index.top(first):
        assert f"{found.value:+.3f}" in done.out
        assert str(found) in done.out
    assert "[b]good" in done.out  # a label is no markup


def test_any_number_of_ngrams_and_detectors(dcnn, model, texts):
    done = dcnn("detectors", model, "--corpus", CORPUS, "--top", 2, "--limit", 3, "--layer", 2)
    assert len(re.findall(r"^  2:\d:\d", done.out, re.MULTILINE)) == 3
    assert "Shown: 3 of 6" in done.out
    every = dcnn("detectors", model, "--corpus", CORPUS, "--limit", 99)
    assert "Shown: 22 of 22" in every.out
    assert "More with" not in every.out


def test_json_tells_all_of_them_to_programs(dcnn, tmp_path, model, texts):
    values = json.loads(dcnn("detectors", model, "--corpus", CORPUS, "--json").out)
    index = rank_detectors(Predictor.load(tmp_path / model), texts)
    by_place = sorted(values["detectors"], key=lambda d: (d["layer"], d["map"], d["row"]))
    assert values | {"detectors": by_place} == json.loads(index.to_json())


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--class", "bad", lambda index: [p.detector for p in index.for_class("bad")]),
        ("--like", "not good", lambda index: [r.detector for r in index.for_text("not good")]),
        ("--find", "not", lambda index: index.find("not")),
    ],
)
def test_detectors_are_found_by_class_example_and_word(
    dcnn, tmp_path, model, texts, option, value, expected
):
    index = rank_detectors(Predictor.load(tmp_path / model), texts)
    chosen = [(d.layer, d.map, d.row) for d in expected(index)]
    done = dcnn("detectors", model, "--corpus", CORPUS, option, value, "--json")
    found = json.loads(done.out)["detectors"]
    assert [(d["layer"], d["map"], d["row"]) for d in found] == chosen
    assert dcnn("detectors", model, "--corpus", CORPUS, option, value).code == 0


def test_one_detector_can_be_named(dcnn, model, texts):
    done = dcnn("detectors", model, "--corpus", CORPUS, "--detector", "1:1:7", "--top", 3)
    assert done.code == 0
    assert "1:1:7" in done.out
    assert "shown to 16 detectors" in done.out  # the other layer is not computed


def test_a_word_that_no_detector_reacts_to_is_reported(dcnn, tmp_path, model):
    (tmp_path / "one.txt").write_text("not good\n")
    done = dcnn("detectors", model, "--corpus", "one.txt", "--find", "very")
    assert (done.code, done.err) == (0, "")
    assert "No detector's strongest n-grams hold clearly more of 'very'" in done.out


def model_that_knows(word, folder):
    artifact = make_artifact(classes=("<b>bad</b>", "good"))
    tokens = replace(artifact.config.text, tokenizer="whitespace")
    encoder = Encoder.learn([f"{word} is not good"], tokens)[0]
    shape = (len(encoder.vocabulary), artifact.config.model.dim)
    weights = artifact.weights | {"embeddings": np.ones(shape, np.float32)}
    config = replace(artifact.config, text=tokens)
    model_folder.save(
        folder, replace(artifact, config=config, encoder=encoder, weights=weights), overwrite=True
    )


class Page(HTMLParser):
    """The elements of a page, and the text of its cells."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.cells = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        if tag == "td":
            self.cells.append("")
        assert not {"src", "href", "onclick"}.intersection(dict(attributes))

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize("word", ["<script>alert(1)</script>", "a|b`c*d_e[f](g)", "&amp;"])
def test_words_are_words_in_every_file(tmp_path, monkeypatch, capsys, word):
    monkeypatch.chdir(tmp_path)
    model_that_knows(word, tmp_path / "steering")
    Path("texts.txt").write_text(f"{word} is not good {word}\n")
    for ending in ("html", "md", "json"):
        out = Path(f"found.{ending}")
        detectors(Path("steering"), Path("texts.txt"), out=out)
        assert f"They are in {out}." in capsys.readouterr().out
    text = Path("found.html").read_text()
    page = Page(text)
    assert page.elements.count("script") == 1
    assert "b" not in page.elements
    assert any(word in cell for cell in page.cells)
    assert "input" in page.elements
    assert "prefers-color-scheme: dark" in text
    markdown = Path("found.md").read_text()
    special = "\\`*_{}[]()#+!|~<>&"
    escaped = "".join(f"\\{c}" if c in special else c for c in word)
    assert escaped in markdown
    assert word not in markdown.replace(escaped, "")
    values = json.loads(Path("found.json").read_text())
    assert values["detectors"][0]["top"][0]["words"][0] == word


def test_control_characters_do_not_reach_the_terminal(dcnn, tmp_path):
    model_that_knows("\x1b[31mred\x07", tmp_path / "steering")
    (tmp_path / "texts.txt").write_text("\x1b[31mred\x07 is not good\n")
    done = dcnn("detectors", "steering", "--corpus", "texts.txt", "--like", "\x9b31m not")
    assert done.code == 0
    assert not {"\x1b", "\x07", "\x9b"}.intersection(done.out)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "gone"}, "gone: no such model folder"),
        ({"corpus": "gone.csv"}, "gone.csv: no such file"),
        ({"corpus": "empty.txt"}, "empty.txt"),
        ({"corpus": "blank.txt"}, "the corpus has no text with a word in it"),
        ({"model": "bag"}, "the model is of the kind nbow, whose detectors cannot"),
        ({"find": "xyzzy"}, "does not know the word 'xyzzy'"),
        ({"of_class": "great"}, "no class 'great'"),
        ({"like": " ", "corpus": "gone.csv"}, "--like has no words"),
        ({"layer": 3, "corpus": "gone.csv"}, "--layer 3 must be from 1 to 2"),
        (
            {"detector": "3:0:0", "corpus": "gone.csv"},
            "--detector 3:0:0: layer 3 must be from",
        ),
        (
            {"detector": "1:0:8", "corpus": "gone.csv"},
            "1:0:8; those of layer 1 are 1:0:0 to 1:1:7",
        ),
        (
            {"detector": "2:3:0", "corpus": "gone.csv"},
            "2:3:0; those of layer 2 are 2:0:0 to 2:2:1",
        ),
        ({"detector": "7"}, "three numbers, LAYER:MAP:ROW"),
        ({"detector": "1:9:9"}, "no detector 1:9:9"),
        ({"detector": "1:0:0", "layer": 2}, "not of --layer 2"),
        ({"find": "not", "of_class": "bad"}, "--find and --class ask for different"),
        ({"model": "gone", "out": Path("x.pdf")}, ".json, .html, .md"),
        ({"model": "gone", "out": Path("no/x.md")}, "there is no folder no"),
        ({"model": "gone", "out": Path("folder.md")}, "--out folder.md is a folder"),
    ],
)
def test_mistakes_are_reported(tmp_path, monkeypatch, model, texts, wrong, message):
    monkeypatch.chdir(tmp_path)
    model_folder.save(tmp_path / "bag", make_artifact(NBoWConfig(dim=5)))
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text(" \n\n")
    Path("folder.md").mkdir()
    with pytest.raises(UserError, match=message):
        detectors(Path(wrong.pop("model", "model")), Path(wrong.pop("corpus", CORPUS)), **wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--text-column", "txt"), "'txt' is no column"),
        (("--find", "xyzzy"), "does not know the word 'xyzzy'"),
    ],
)
def test_a_mistake_gets_one_sentence(dcnn, model, texts, arguments, message):
    done = dcnn("detectors", model, "--corpus", CORPUS, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_interrupted_pass_ends_without_a_traceback(tmp_path, model):
    (tmp_path / "long.txt").write_text("not good\n" * 3_000_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "dcnn", "detectors", model, "--corpus", "long.txt"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    files = Path(f"/proc/{process.pid}/fd")
    while not any(one.resolve().name == "long.txt" for one in files.iterdir()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_terminal_shows_progress(tmp_path, model, texts):
    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "dcnn", "detectors", model, "--corpus", CORPUS, "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=follower,
        env=os.environ | {"TERM": "xterm"},
        check=True,
    )
    os.close(follower)
    assert json.loads(done.stdout)["sentences"] == 60
    assert b"reading the corpus: 60 texts" in os.read(leader, 1 << 16)
    os.close(leader)
