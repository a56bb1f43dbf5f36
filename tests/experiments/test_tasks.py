import lzma
from dataclasses import replace

import numpy as np
import pytest

from dcnn.config import Config, TextConfig
from dcnn.data.corpora.registry import Source
from dcnn.errors import ConfigError, DataError
from dcnn.experiments.recipes import DataConfig, DistillationConfig, Recipe
from dcnn.experiments.tasks import load_task

TREES = {
    "train": "(3 (2 It) (4 (2 's) (4 good-natured)))\n(1 (2 so) (0 bad))\n(2 (2 a) (2 film))\n",
    "dev": "(4 (4 good) (2 film))\n(2 (2 it) (2 is))\n(0 (2 new) (0 bad))\n",
    "test": "(0 (0 bad) (2 film))\n(2 a)\n",
}


@pytest.fixture
def sst(tmp_path):
    for part, text in TREES.items():
        (tmp_path / f"{part}.txt").write_text(text, encoding="utf-8")
    return {part: Source(tmp_path / f"{part}.txt") for part in TREES}


def load(experiment, sources, text=None, **data):
    config = Config(text=TextConfig(**({"tokenizer": "whitespace"} | (text or {}))))
    recipe = Recipe("mine", config, DataConfig(**data))
    return load_task(experiment, recipe, sources)


def words(task, sentences):
    known = ("?", *task.encoder.vocabulary.words)
    return [
        " ".join(known[i] for i in sentences.ids[start:end])
        for start, end in zip(sentences.offsets[:-1], sentences.offsets[1:], strict=True)
    ]


def test_hard_binary_targets_leave_neutral_phrases_out(sst):
    task = load("sst2", sst)
    assert words(task, task.train.sentences) == [
        "it 's good-natured", "'s good-natured", "good-natured", "so bad", "bad",
    ]  # fmt: skip
    assert task.train.targets.tolist() == [1, 1, 1, 0, 0]
    assert words(task, task.dev.sentences) == ["? ?", "? bad"]
    assert task.dev.targets.tolist() == [1, 0]
    assert task.test.targets.tolist() == [0]
    assert task.sizes == {"train": 5, "dev": 2, "test": 1}


def test_soft_binary_targets_keep_every_phrase(sst):
    task = load("sst2", sst, soft_targets=(0.0, 0.1, 0.5, 0.9, 1.0))
    assert len(task.train) == 11
    np.testing.assert_allclose(task.train.targets[0], [0.1, 0.9], rtol=1e-6)
    np.testing.assert_allclose(task.train.targets[1], [0.5, 0.5], rtol=1e-6)
    assert len(task.dev) == 2  # neutral sentences are in no test of the binary task


def test_neighbour_smoothing_follows_the_order_of_the_labels(sst):
    assert load("sst5", sst).train.targets[:3].tolist() == [3, 2, 4]
    smoothed = load("sst5", sst, neighbour_smoothing=0.2).train.targets
    np.testing.assert_allclose(smoothed[0], [0, 0, 0.1, 0.8, 0.1], rtol=1e-6)
    np.testing.assert_allclose(smoothed[2], [0, 0, 0, 0.2, 0.8], rtol=1e-6)
    np.testing.assert_allclose(smoothed.sum(axis=1), 1, rtol=1e-6)


def test_sentences_only_and_sentence_weights(sst):
    assert len(load("sst5", sst, phrases=False).train) == 3
    weights = load("sst5", sst, sentence_weight=3.0).train.weights
    assert weights.mean() == pytest.approx(1)
    assert weights[0] == pytest.approx(3 * weights[1])


def test_swapped_sentences_follow_those_of_the_trees(sst):
    plain, swapped = load("sst5", sst), load("sst5", sst, swaps=2)
    assert len(swapped.train) == len(plain.train) + 2 * 3
    assert swapped.train.targets[len(plain.train) :].tolist() == [3, 3, 1, 1, 2, 2]
    assert len(swapped.dev) == len(plain.dev)


def test_swapped_sentences_for_students_have_no_labels(sst):
    plain = load("sst5", sst)
    assert plain.unlabelled is None
    config = Config(text=TextConfig(tokenizer="whitespace"))
    recipe = Recipe("mine", config, distillation=DistillationConfig(1, swaps=2))
    task = load_task("sst5", recipe, sst)
    assert words(task, task.train.sentences) == words(plain, plain.train.sentences)
    assert [len(text.split()) for text in words(task, task.unlabelled)] == [3, 3, 2, 2, 2, 2]
    assert not any("?" in text for text in words(task, task.unlabelled))


def test_the_authors_split_hyphens_and_drop_unknown_words(sst):
    task = load("sst2", sst, authors_tokens=True)
    assert task.encoder.vocabulary.words[:4] == ("it", "'s", "good", "natured")
    assert "film" in task.encoder.vocabulary.words  # from a neutral sentence
    assert words(task, task.train.sentences)[0] == "it 's good natured"
    assert words(task, task.dev.sentences) == ["good film", "bad"]


@pytest.mark.corpora
def test_the_paper_recipe_has_the_vocabulary_of_the_paper(corpora):
    sources = {part: Source(corpora / "sst" / f"{part}.txt") for part in TREES}
    task = load("sst2", sources, authors_tokens=True)
    assert len(task.encoder.vocabulary) == 15_448
    assert not (task.train.sentences.ids == 0).any()


def test_dropping_unknown_words_leaves_no_sentence_empty(sst):
    sst["dev"].path.write_text("(4 (4 new) (2 good))\n(0 (0 awful) (2 thing))\n(4 good)\n")
    task = load("sst2", sst, authors_tokens=True)
    good = task.encoder.vocabulary.ids(["good"])[0]
    assert task.dev.sentences.ids.tolist() == [good, 0, good]
    assert task.dev.sentences.lengths.tolist() == [1, 1, 1]


def test_trec_is_selected_by_cross_validation(tmp_path):
    for part, text in (
        ("train", "LOC:city Where ?\nHUM:ind Who is ?\n"),
        ("test", "HUM:ind Who ?"),
    ):
        (tmp_path / part).write_text(text)
    sources = {part: Source(tmp_path / part) for part in ("train", "test")}
    task = load("trec", sources, {"tokenizer": "words"})
    assert task.classes == ("HUM", "LOC")
    assert task.dev is None
    assert words(task, task.test.sentences) == ["who ?"]


def test_twitter_holds_out_the_same_tweets_for_every_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("DCNN_CACHE", str(tmp_path / "cache"))
    train = tmp_path / "train.csv.xz"
    train.write_bytes(lzma.compress("".join(f"{i % 2},tweet{i}\n" for i in range(50)).encode()))
    test = tmp_path / "test.csv"
    test.write_text('"4","3","d","q","u","tweet1 &lt;3"\n"2","4","d","q","u","neutral"\n')
    sources = {"train": Source(train), "test": Source(test)}
    options = {"held_out": 0.2}
    task = load("twitter", sources, {"tokenizer": "tweet"}, **options)
    again = load("twitter", sources, {"tokenizer": "tweet", "min_count": 1}, **options)
    assert task.sizes == {"train": 40, "dev": 10, "test": 1}
    dev, train_words = (set(words(task, part.sentences)) for part in (task.dev, task.train))
    assert (dev, len(train_words)) == ({"?"}, 40)
    assert train_words == set(words(again, again.train.sentences))
    assert task.dev.targets.tolist() == again.dev.targets.tolist()
    for text, target in zip(words(task, task.train.sentences), task.train.targets, strict=True):
        assert int(text.removeprefix("tweet")) % 2 == target


@pytest.mark.parametrize("stored", [True, False])
def test_words_of_held_out_tweets_are_not_in_the_vocabulary(tmp_path, monkeypatch, stored):
    cache = tmp_path / "cache"
    monkeypatch.setenv("DCNN_CACHE", str(cache))
    if not stored:
        cache.write_text("a file where the folder should be")
    train = tmp_path / "train.csv"
    train.write_text("".join(f"{i % 2},tweet{i} common\n" for i in range(50)))
    (tmp_path / "test.csv").write_text('"4","3","d","q","u","tweet1"\n')
    sources = {"train": Source(train), "test": Source(tmp_path / "test.csv")}
    task = load("twitter", sources, {"tokenizer": "tweet"}, held_out=0.2)
    assert words(task, task.dev.sentences) == ["? common"] * 10
    assert len(task.encoder.vocabulary) == 42  # the unknown word, the common one and 40
    assert "?" not in " ".join(words(task, task.train.sentences))


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("train", "(2 a)\n", r"train\.txt has no example of negative or positive"),
        ("dev", "(2 a)\n", r"dev\.txt has no example of negative or positive"),
        ("test", "(2 a)\n", r"test\.txt has no example of negative or positive"),
        ("train", "(4 a)\n", r"train\.txt has examples of one label only, positive"),
    ],
)
def test_data_that_cannot_train_a_model_is_refused(sst, part, text, message):
    sst[part].path.write_text(text)
    with pytest.raises(DataError, match=message):
        load("sst2", sst)


def test_a_label_that_is_not_in_training_is_refused(tmp_path):
    for part, text in (("train", "LOC:city Where ?\nHUM:ind Who ?\n"), ("test", "NUM:date When ?")):
        (tmp_path / part).write_text(text)
    sources = {part: Source(tmp_path / part) for part in ("train", "test")}
    with pytest.raises(DataError, match="NUM"):
        load("trec", sources, {"tokenizer": "words"})


def test_settings_without_effect_are_refused(sst):
    recipe = Recipe("mine", Config().with_training(label_smoothing=0.1), DataConfig())
    load_task("sst5", recipe, sst)
    smoothed = replace(recipe, data=DataConfig(neighbour_smoothing=0.2))
    with pytest.raises(ConfigError, match=r"label_smoothing=0\.1 has no effect on the soft"):
        load_task("sst5", smoothed, sst)


def test_words_of_the_vectors_join_the_vocabulary(sst, tmp_path):
    vectors = tmp_path / "v.txt"
    vectors.write_text("new 1 2\nbad 3 4\n")
    text = {"vectors": str(vectors), "vectors_words": 10}
    task = load("sst2", sst, text)
    assert words(task, task.dev.sentences) == ["? ?", "new bad"]
