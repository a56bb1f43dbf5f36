"""The tokenizer of an export: Hugging Face's library and the script give the ids of our encoder."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer as HuggingFace

from dcnn import artifact as model_folder
from dcnn.artifact import NGRAMS
from dcnn.config import TextConfig
from dcnn.data.corpora.opinions import read_opinions
from dcnn.errors import DcnnError, UserError
from dcnn.export import export
from dcnn.export.onnx import open_session, run_onnx
from dcnn.export.tokenizer import HUGGINGFACE, SCRIPT, huggingface_json, script_text
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import LEARNED, PRESETS, SubwordTokenizer
from dcnn.text.vocabulary import Vocabulary
from strings import random_texts
from untrained import make_artifact

KINDS = [(preset, True) for preset in (*PRESETS, *LEARNED)]
KINDS += [(preset, False) for preset in (*PRESETS, *LEARNED) if preset != "tweet"]
# Of all kinds together 100,000; more with DCNN_STRINGS, each kind as many.
COUNT = int(os.environ.get("DCNN_STRINGS", 100_000 // len(KINDS) + 1))


def learned_from(texts, preset, lowercase=True, char_ngrams=()):
    config = TextConfig(
        tokenizer=preset,
        lowercase=lowercase,
        min_count=1,
        n_subwords=300,
        char_ngrams=char_ngrams,
        n_buckets=100,
    )
    return Encoder.learn(texts, config)[0]


def expected_ids(encoder, texts):
    return [encoder.vocabulary.ids(encoder.tokenizer(text)) or [0] for text in texts]


def found_ids(library, encoder, texts):
    """Ids that the vocabulary does not have are those of unknown subwords."""
    known = len(encoder.vocabulary)
    return [[i if i < known else 0 for i in one.ids] for one in library.encode_batch(texts)]


@pytest.mark.parametrize(("preset", "lowercase"), KINDS)
def test_hugging_face_gives_the_same_ids_for_random_texts(preset, lowercase):
    # Most words are known, so that the ids tell them apart.
    encoder = learned_from(random_texts(COUNT // 4, seed=1), preset, lowercase)
    library = HuggingFace.from_str(huggingface_json(encoder))
    texts = random_texts(COUNT, seed=2, words=encoder.vocabulary.words[:500])
    expected = expected_ids(encoder, texts)
    found = found_ids(library, encoder, texts)
    different = [t for t, a, b in zip(texts, expected, found, strict=True) if a != b]
    assert not different, list(map(ascii, different[:5]))
    assert np.mean([i > 0 for ids in expected for i in ids]) > 0.5


@pytest.mark.parametrize(("preset", "lowercase"), KINDS)
def test_hugging_face_gives_the_same_ids_for_a_corpus(preset, lowercase):
    corpus = [opinion.text for opinion in read_opinions()["train"][:400]]
    encoder = learned_from(corpus[:200], preset, lowercase)
    library = HuggingFace.from_str(huggingface_json(encoder))
    assert found_ids(library, encoder, corpus) == expected_ids(encoder, corpus)
    if preset in PRESETS:  # only subwords have ids beyond the vocabulary
        assert max(max(one.ids) for one in library.encode_batch(corpus)) < len(encoder.vocabulary)


@pytest.mark.corpora
@pytest.mark.parametrize("preset", ["words", "tweet"])
def test_hugging_face_gives_the_same_ids_for_questions_and_reviews(corpora, preset):
    lines = (
        (corpora / "sst" / "test.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    )
    lines += (corpora / "trec" / "TREC_10.label").read_text(encoding="latin-1").splitlines()
    encoder = learned_from(lines[::2], preset)
    library = HuggingFace.from_str(huggingface_json(encoder))
    assert found_ids(library, encoder, lines) == expected_ids(encoder, lines)


def test_a_word_of_the_vocabulary_may_look_like_the_unknown_one():
    encoder = learned_from(["a <unk> <<unk>> b"], "whitespace")
    library = HuggingFace.from_str(huggingface_json(encoder))
    assert library.encode("<unk> x <<unk>>").ids == encoder.vocabulary.ids(
        ["<unk>", "x", "<<unk>>"]
    )
    assert library.encode("").ids == library.encode(" \t ").ids == [0]


@pytest.mark.parametrize("words", [(), ("hello", "##q", "h")])
@pytest.mark.parametrize("preset", LEARNED)
def test_words_that_splitting_never_gives_keep_their_ids(preset, words):
    encoder = learned_from(["the cat sat on the mat"] * 3 if words else [], preset)
    vocabulary = Vocabulary(list(dict.fromkeys((*encoder.vocabulary.words, *words))))
    encoder = encoder._replace(vocabulary=vocabulary)
    library = HuggingFace.from_str(huggingface_json(encoder))
    texts = ["hello qat", "the cat sat", "q", "x" * 100 + " t" * 3, "aq" * 70]
    assert found_ids(library, encoder, texts) == expected_ids(encoder, texts)


@pytest.mark.parametrize(
    "tokenizer",
    [
        SubwordTokenizer("bpe", True, (("a", "a"), ("aa", "a"))),
        SubwordTokenizer("unigram", True, (("a", -2.0), ("aa", -3.0), ("aaa", -4.5), ("b", -4.0))),
    ],
)
def test_long_words_and_pairs_that_overlap_are_split_alike(tokenizer):
    subwords = ["a", "aa", "aaa", "aaaa", "b"]
    encoder = Encoder(tokenizer, Vocabulary([p + s for s in subwords for p in ("", "##")]))
    library = HuggingFace.from_str(huggingface_json(encoder))
    texts = ["a" * n for n in range(140)] + ["b" + "a" * n for n in range(140)] + ["aab?aa??aaa"]
    assert found_ids(library, encoder, texts) == expected_ids(encoder, texts)


def run_script(folder, code):
    """In a process where this package cannot be imported."""
    blocked = "import sys; sys.modules['dcnn'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + code],
        capture_output=True, text=True, cwd=folder, env={"PATH": ""}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("preset", [*PRESETS, *LEARNED])
def test_the_script_gives_the_same_ids_and_ngrams(tmp_path, preset):
    encoder = learned_from([*random_texts(200, seed=1), "it's ''' \"\"\" \\"], preset, True, (2, 3))
    texts = random_texts(300, seed=2)
    (tmp_path / SCRIPT).write_text(script_text(encoder), encoding="utf-8")
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    code = (
        "import json, tokenize_text as t\n"
        "texts = json.load(open('texts.json'))\n"
        "print(json.dumps([t.inputs([text])['ids'][0].tolist() for text in texts]))\n"
        "arrays = t.inputs(texts)\n"
        "print(json.dumps({name: array.tolist() for name, array in arrays.items()}))\n"
    )
    alone, together = map(json.loads, run_script(tmp_path, code).splitlines())
    assert alone == expected_ids(encoder, texts)
    for text, ids, length, rows in zip(
        texts, together["ids"], together["lengths"], together.get("ngrams", texts), strict=True
    ):
        tokens = encoder.tokenizer(text)
        assert ids[:length] == (encoder.vocabulary.ids(tokens) or [0])
        if encoder.char_ngrams is None:
            continue
        for token, row in zip(tokens, rows, strict=False):
            known = encoder.vocabulary.ids([token])[0] > 0
            assert [b for b in row if b < 100] == (
                [] if known else encoder.char_ngrams.buckets(token)
            )
    assert ("ngrams" in together) == (encoder.char_ngrams is not None)


def test_script_and_graph_give_the_probabilities_of_the_model(tmp_path):
    artifact = make_artifact(char_ngrams=(3, 5))
    exported = export(artifact, tmp_path / "m.onnx")
    assert [path.name for path in exported.beside] == [HUGGINGFACE, SCRIPT]
    texts = ["the dullish plot isn't goodish", "", "The plot", "completely unheard-of"]
    code = (
        "import json, onnxruntime, tokenize_text\n"
        "session = onnxruntime.InferenceSession('m.onnx')\n"
        f"print(json.dumps(session.run(None, tokenize_text.inputs({texts!r}))[0].tolist()))\n"
    )
    found = json.loads(run_script(tmp_path, code))
    expected = Predictor(artifact).probabilities(texts)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # Without n-grams, as by the library, a new word is the unknown word: another answer.
    library = HuggingFace.from_file(str(tmp_path / HUGGINGFACE))
    ids = np.array([library.encode(texts[3]).ids])
    none = np.full((*ids.shape, 0), artifact.weights[NGRAMS].shape[0])
    session = open_session((tmp_path / "m.onnx").read_bytes())
    inputs = {"ids": ids, "lengths": np.array([ids.shape[1]]), "ngrams": none}
    assert np.abs(session.run(None, inputs)[0] - expected[3]).max() > 1e-3


@pytest.mark.parametrize("preset", LEARNED)
def test_the_graph_takes_ids_beyond_the_vocabulary_for_unknown_subwords(tmp_path, preset):
    plain = make_artifact()
    encoder = learned_from(["the plot is not dull but the acting was good"] * 2, preset)
    encoder = type(encoder)(
        encoder.tokenizer, type(encoder.vocabulary)(encoder.vocabulary.words[:15])
    )
    artifact = type(plain)(plain.config, plain.classes, encoder, plain.weights)
    export(artifact, tmp_path / "m.onnx")
    library = HuggingFace.from_file(str(tmp_path / HUGGINGFACE))
    text = "the acting is undulled by goodness"
    ids = np.array([library.encode(text).ids])
    assert ids.max() > 15
    session = open_session((tmp_path / "m.onnx").read_bytes())
    (found,) = session.run(None, {"ids": ids, "lengths": np.array([ids.shape[1]])})
    sentences = encoder.encode_all([text])
    np.testing.assert_allclose(found, Predictor(artifact).probabilities([text]), atol=1e-6)
    np.testing.assert_allclose(found, run_onnx(session, encoder, sentences), atol=1e-6)


def test_a_tokenizer_that_differs_is_not_written(tmp_path, monkeypatch):
    artifact = make_artifact()
    other = huggingface_json(learned_from(["other words"], "words"))
    monkeypatch.setattr("dcnn.export.huggingface_json", lambda _: other)
    with pytest.raises(DcnnError, match=r"tokenizer.json gives the text 'the' the ids \[0\] where"):
        export(artifact, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_the_tokenizer_of_another_model_is_replaced_only_with_overwrite(tmp_path):
    first, second = make_artifact(), make_artifact(char_ngrams=(3, 5))
    export(first, tmp_path / "first.onnx")
    export(first, tmp_path / "small.onnx", "int8")  # the same tokenizer
    with pytest.raises(UserError, match=rf"{SCRIPT} exists; pass --overwrite"):
        export(second, tmp_path / "second.onnx")
    assert not (tmp_path / "second.onnx").exists()
    export(second, tmp_path / "second.onnx", overwrite=True)
    assert (tmp_path / SCRIPT).read_text(encoding="utf-8") == script_text(second.encoder)


def test_the_tokenizer_of_a_model_folder_is_never_replaced(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    with pytest.raises(UserError, match=r"model is a model folder, and tokenizer.json would be"):
        export(tmp_path / "model", tmp_path / "model" / "m.onnx", overwrite=True)
