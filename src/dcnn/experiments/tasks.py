"""The four experiments' corpora, ready to learn from: ids, targets, and what is held out.

Selection is on dev: SST's own; a seeded part of the training tweets; and for TREC, which has no
dev set, cross-validation over the training questions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TextConfig
from dcnn.data.batching import Examples
from dcnn.data.corpora import Source
from dcnn.data.encoded import load_or_encode
from dcnn.data.sentiment140 import CLASSES as TWITTER_CLASSES
from dcnn.data.sentiment140 import iterate_sentiment140
from dcnn.data.sst import NEUTRAL, Phrase, authors_tokens, read_trees
from dcnn.data.subtree_swaps import swap_subtrees
from dcnn.data.trec import read_trec
from dcnn.experiments.recipes import DataConfig, Recipe
from dcnn.text.encoder import Encoder
from dcnn.text.sentences import Ints, Sentences
from dcnn.text.vectors import with_vector_words
from dcnn.text.vocabulary import UNKNOWN

BINARY_CLASSES = ("negative", "positive")
FINE_CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")


@dataclass(frozen=True)
class Task:
    """An experiment's data.

    Attributes:
        classes: the labels by class number.
        encoder: learned on the training texts.
        train: sentences with class numbers or soft targets.
        dev: what selection looks at; none where it is by cross-validation over ``train``.
        test: looked at once, at the end of a run.
    """

    classes: tuple[str, ...]
    encoder: Encoder
    train: Examples
    dev: Examples | None
    test: Examples

    @property
    def selection(self) -> str:
        """How settings and weights are chosen."""
        return "cross-validation" if self.dev is None else "dev"

    @property
    def sizes(self) -> dict[str, int]:
        """Examples of each part."""
        return {
            "train": len(self.train),
            "dev": 0 if self.dev is None else len(self.dev),
            "test": len(self.test),
        }


def load_task(
    experiment: str, recipe: Recipe, sources: dict[str, Source], cache: Path | None, processes: int
) -> Task:
    """Read the corpus of ``experiment`` as ``recipe`` says.

    Args:
        experiment: sst2, sst5, trec or twitter.
        recipe: its ``data`` and ``text`` settings are used.
        sources: the parts of the corpus (train, dev, test), as ``find_corpus`` gives them.
        cache: folder for encoded corpora; none is the user's.
        processes: for tokenizing.
    """
    text, data = recipe.config.text, recipe.data
    match experiment:
        case "sst2" | "sst5":
            return _load_sst(sources, text, data, binary=experiment == "sst2")
        case "trec":
            return _load_trec(sources, text)
        case _:
            return _load_twitter(sources, text, data, cache, processes)


def _load_sst(
    sources: dict[str, Source], text: TextConfig, data: DataConfig, *, binary: bool
) -> Task:
    def string(phrase: Phrase) -> str:
        words = authors_tokens(phrase.words) if data.authors_tokens else phrase.words
        return " ".join(words)

    trees = read_trees(sources["train"].path)
    # Always the same swaps: what varies between seeds is the training.
    new_sentences = swap_subtrees(trees, data.swaps, np.random.default_rng(0))
    trees += [[sentence] for sentence in new_sentences]
    phrases = [
        (phrase, place == 0)
        for tree in trees
        for place, phrase in enumerate(tree if data.phrases else tree[:1])
        if not (binary and not data.soft_targets and phrase.label == NEUTRAL)
    ]
    labels = np.array([phrase.label for phrase, _ in phrases])
    encoder, sentences = Encoder.learn([string(phrase) for phrase, _ in phrases], text)
    encoder = with_vector_words(encoder, text)
    whole = np.array([is_whole for _, is_whole in phrases])
    weights = np.where(whole, data.sentence_weight, 1.0) if data.sentence_weight != 1 else None

    def held_out(part: str) -> Examples:
        whole_sentences = [tree[0] for tree in read_trees(sources[part].path)]
        chosen = [p for p in whole_sentences if not (binary and p.label == NEUTRAL)]
        encoded = encoder.encode_all([string(phrase) for phrase in chosen])
        truth = np.array([phrase.label for phrase in chosen])
        encoded = without_unknown(encoded) if data.authors_tokens else encoded
        return Examples(encoded, (truth > NEUTRAL).astype(np.int64) if binary else truth)

    targets = _binary_targets(labels, data) if binary else _fine_targets(labels, data)
    return Task(
        BINARY_CLASSES if binary else FINE_CLASSES,
        encoder,
        Examples(sentences, targets, None if weights is None else weights / weights.mean()),
        held_out("dev"),
        held_out("test"),
    )


def _binary_targets(labels: Ints, data: DataConfig) -> NDArray[Any]:
    if not data.soft_targets:
        return (labels > NEUTRAL).astype(np.int64)
    positive = np.array(data.soft_targets, np.float32)[labels]
    return np.stack([1 - positive, positive], axis=1)


def _fine_targets(labels: Ints, data: DataConfig) -> NDArray[Any]:
    """Class numbers; with neighbour smoothing, distributions that know the labels' order."""
    if not data.neighbour_smoothing:
        return labels
    count = len(FINE_CLASSES)
    distance = np.abs(np.arange(count)[:, None] - np.arange(count))
    neighbours = (distance == 1) / (distance == 1).sum(axis=1, keepdims=True)
    rows = (1 - data.neighbour_smoothing) * np.eye(count) + data.neighbour_smoothing * neighbours
    smoothed: NDArray[np.float32] = rows[labels].astype(np.float32)
    return smoothed


def _load_trec(sources: dict[str, Source], text: TextConfig) -> Task:
    train, test = read_trec(sources["train"].path), read_trec(sources["test"].path)
    classes = tuple(sorted(set(train.labels)))
    encoder, sentences = Encoder.learn(train.texts, text)
    encoder = with_vector_words(encoder, text)
    return Task(
        classes,
        encoder,
        Examples(sentences, train.class_numbers(classes)),
        None,
        Examples(encoder.encode_all(test.texts), test.class_numbers(classes)),
    )


def _load_twitter(
    sources: dict[str, Source],
    text: TextConfig,
    data: DataConfig,
    cache: Path | None,
    processes: int,
) -> Task:
    corpus = load_or_encode(
        [sources["train"].path],
        f"sentiment140 {sources['train'].member}",
        lambda: iterate_sentiment140(*sources["train"]),
        text,
        cache=cache,
        processes=processes,
    )
    encoder = with_vector_words(corpus.encoder, text)
    # Always the same tweets, so that every run and recipe is selected on the same dev set.
    order = np.random.default_rng(0).permutation(len(corpus.sentences))
    held_out = min(data.held_out, len(order) // 2)
    dev, train = np.sort(order[:held_out]), np.sort(order[held_out:])
    tweets = list(iterate_sentiment140(*sources["test"]))
    return Task(
        TWITTER_CLASSES,
        encoder,
        Examples(corpus.sentences.select(train), corpus.targets[train].astype(np.int64)),
        Examples(corpus.sentences.select(dev), corpus.targets[dev].astype(np.int64)),
        Examples(
            encoder.encode_all([tweet for tweet, _ in tweets]),
            np.array([target for _, target in tweets]),
        ),
    )


def without_unknown(sentences: Sentences) -> Sentences:
    """The sentences without their unknown words; one with no other keeps one."""
    known = sentences.ids != UNKNOWN
    owners = np.repeat(np.arange(len(sentences)), sentences.lengths)
    counts = np.bincount(owners[known], minlength=len(sentences))
    first = np.zeros(len(known), np.bool_)
    first[sentences.offsets[:-1]] = True
    kept = known | (first & (counts[owners] == 0))
    return Sentences.from_flat(sentences.ids[kept], np.maximum(counts, 1))
