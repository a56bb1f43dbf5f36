"""Features of questions: rules on given parses, WordNet's files, and what is missing is named."""

import importlib.util
import os
import re
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from dcnn.errors import DataError, MissingExtraError
from dcnn.experiments.features import (
    GROUPS,
    Token,
    WordNet,
    features_of,
    fit_features,
    head_word,
    parse,
    question_word,
    word_shape,
)


def question(*words):
    """Words written as ``text/tag/pos/dep/head``; the lemma is the lower-cased text."""
    parts = [word.split("/") for word in words]
    return [Token(t, t.lower(), tag, pos, dep, int(h), "") for t, tag, pos, dep, h in parts]


WHAT_BIRD = question(
    "What/WDT/DET/det/1", "bird/NN/NOUN/nsubj/2", "eats/VBZ/VERB/ROOT/2", "fish/NN/NOUN/dobj/2",
    "?/./PUNCT/punct/2",
)  # fmt: skip
WHAT_KIND = question(
    "What/WDT/DET/det/1", "kind/NN/NOUN/nsubj/4", "of/IN/ADP/prep/1", "bird/NN/NOUN/pobj/2",
    "sings/VBZ/VERB/ROOT/4",
)  # fmt: skip
WHAT_IS = question(
    "What/WP/PRON/attr/1", "is/VBZ/AUX/ROOT/1", "the/DT/DET/det/3", "capital/NN/NOUN/nsubj/1",
    "of/IN/ADP/prep/3", "Peru/NNP/PROPN/pobj/4", "?/./PUNCT/punct/1",
)  # fmt: skip
NAME = question("Name/VB/VERB/ROOT/0", "a/DT/DET/det/2", "film/NN/NOUN/dobj/0")
WHO = question("Who/WP/PRON/nsubj/1", "wrote/VBD/VERB/ROOT/1", "Hamlet/NNP/PROPN/dobj/1")


@pytest.mark.parametrize(
    ("tokens", "asks", "noun"),
    [
        (WHAT_BIRD, "What", "bird"),
        (WHAT_KIND, "What", "bird"),
        (WHAT_IS, "What", "capital"),
        (NAME, None, "film"),
        (WHO, "Who", None),
    ],
)
def test_the_rules_find_the_question_word_and_the_noun_that_is_asked_for(tokens, asks, noun):
    place, head = question_word(tokens), head_word(tokens)
    assert (None if place is None else tokens[place].text) == asks
    assert (None if head is None else tokens[head].text) == noun


@pytest.mark.parametrize(
    ("word", "shape"),
    [("1984", "digits"), ("B2", "with digits"), ("NATO", "upper"), ("Peru", "title"),
     ("film", "lower"), ("?", "other"), ("McCoy", "other")],
)  # fmt: skip
def test_shapes_of_words(word, shape):
    assert word_shape(word) == shape


@pytest.fixture
def wordnet(tmp_path):
    """Three synsets: a bird is an animal; a goose is a bird; its plural is irregular."""
    licence = "  1 this is a licence\n"
    (tmp_path / "noun.exc").write_text("geese goose\n")
    (tmp_path / "index.noun").write_text(
        licence
        + "animal n 1 1 ~ 1 1 00000001  \nbird n 2 2 @ ~ 2 1 00000002 00000001  \n"
        + "goose n 1 1 @ 1 0 00000003  \n"
    )
    (tmp_path / "data.noun").write_text(
        licence
        + "00000001 03 n 02 animal 0 beast 0 001 ~ 00000002 n 0000 | a living thing  \n"
        + "00000002 05 n 01 bird 0 002 @ 00000001 n 0000 ~ 00000003 n 0000 | it has wings  \n"
        + "00000003 05 n 01 goose 0 001 @ 00000002 n 0000 | it is large  \n"
    )
    return WordNet(tmp_path)


def test_hypernyms_are_all_concepts_above_the_first_sense(wordnet):
    assert wordnet.hypernyms("geese") == {"00000001", "00000002", "00000003"}
    assert wordnet.hypernyms("Birds") == {"00000001", "00000002"}
    assert wordnet.hypernyms("unheard") == set()


def test_every_group_has_its_features(wordnet):
    found = features_of(WHAT_BIRD, wordnet)
    assert {name.partition(": ")[0] for name in found} == set(GROUPS) - {
        "named entities",
        "patterns",
    }
    assert {
        "unigrams: fish",
        "bigrams: <s> what",
        "question word: verb what eats",
        "head word: what bird",
        "part of speech: WDT NN",
        "hypernyms: 00000001",
    } <= found.keys()
    person = [Token("Who", "who", "WP", "PRON", "attr", 1, ""), *WHAT_IS[1:2]]
    person += [Token("Peru", "Peru", "NNP", "PROPN", "nsubj", 1, "GPE"), WHAT_IS[-1]]
    assert {"patterns: person", "named entities: GPE"} <= features_of(person, wordnet).keys()


def test_a_missing_wordnet_is_named_with_its_package(tmp_path):
    with pytest.raises(DataError, match=r"noun.exc cannot be read .*wordnet-base.*--wordnet"):
        WordNet(tmp_path / "nowhere")


def test_a_missing_parser_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r"svm-features needs the extra 'features'"):
        parse(["Who ?"])


@pytest.mark.skipif(importlib.util.find_spec("spacy") is None, reason="needs the extra features")
def test_a_missing_model_is_named_with_the_command_that_installs_it(tmp_path):
    with pytest.raises(DataError, match=r"--parser .*nowhere is neither .* spacy download en_core"):
        parse(["Who ?"], str(tmp_path / "nowhere"))


@pytest.mark.skipif("DCNN_SPACY" not in os.environ, reason="DCNN_SPACY names no model of spaCy")
def test_a_real_parse_finds_the_head_word():
    (tokens,), version = parse(["What kind of bird lives in Peru ?"], os.environ["DCNN_SPACY"])
    assert tokens[head_word(tokens)].text == "bird"
    assert re.fullmatch(r"en_\w+ 3\.\d+\.\d+, spaCy 3\.\d+\.\d+", version)


def test_a_result_names_the_parser_and_its_version(monkeypatch, wordnet, tmp_path):
    class Model:
        """spaCy, to the extent that it is used, with a parse without relations."""

        meta: ClassVar = {"lang": "en", "name": "core_web_md", "version": "3.8.0"}

        def pipe(self, texts, batch_size):
            for text in texts:
                yield [
                    SimpleNamespace(text=word, lemma_=word, tag_="NN", pos_="NOUN", dep_="ROOT",
                                    head=SimpleNamespace(i=at), ent_type_="")
                    for at, word in enumerate(text.split())
                ]  # fmt: skip

    spacy = SimpleNamespace(load=lambda name: Model(), __version__="3.8.7")
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    questions = tmp_path / "questions.label"
    questions.write_text("LOC:city Where is it ?\nNUM:count How many ?\n" * 6)
    sources = {part: SimpleNamespace(path=questions) for part in ("train", "test")}
    found = fit_features(sources, 2, "/anywhere/model", tmp_path)
    assert found.notes["parser"] == "en_core_web_md 3.8.0, spaCy 3.8.7"
    assert found.accuracy == 1


def test_questions_are_those_of_trec_alone(dcnn):
    refused = dcnn("experiment", "sst2", "--models", "svm-features")
    assert refused.code == 2
    assert "--models svm-features: its rules are about questions, and sst2 has none" in refused.err
