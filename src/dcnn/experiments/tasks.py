"""The corpora of the four experiments as ids and targets, split into train, dev and test.

Selection is on dev: SST has its own dev set, for Twitter a seeded part of the training tweets is
held out, and TREC is cross-validated over its training questions (the paper has no dev set there).
Words that occur only in held-out examples are not in the vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TREE_KINDS, TextConfig
from dcnn.data.batching import Examples
from dcnn.data.corpora import sentiment140
from dcnn.data.corpora.registry import Source, cache_folder
from dcnn.data.corpora.sst import NEUTRAL, Phrase, authors_tokens, read_trees, swap_subtrees
from dcnn.data.corpora.trec import read_trec
from dcnn.data.encode import load_or_encode
from dcnn.data.store import Store
from dcnn.errors import ConfigError, DataError
from dcnn.experiments.recipes import DataConfig, Recipe
from dcnn.metrics import target_distributions
from dcnn.models.recursive import Trees
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences, Vocabulary

BINARY_CLASSES = ("negative", "positive")
FINE_CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")


@dataclass(frozen=True)
class Task:
    """An experiment's data."""

    classes: tuple[str, ...]  # the labels by class number
    encoder: Encoder  # learned on the training texts
    train: Examples  # with class numbers or soft targets
    dev: Examples | None  # none where selection is by cross-validation over ``train``
    test: Examples  # predicted once, at the end of a run
    unlabelled: Sentences | None = None  # for students: only their teachers label them
    notes: dict[str, Any] = field(default_factory=dict)  # for the results, about a teacher
    held_out: "Task | None" = None  # the same with a part of ``train`` as dev, for selection

    @property
    def sizes(self) -> dict[str, int]:
        """Number of examples per split."""
        dev = 0 if self.dev is None else len(self.dev)
        return {"train": len(self.train), "dev": dev, "test": len(self.test)}


@dataclass(frozen=True, kw_only=True)
class TreeTask(Task):
    """An experiment's data as trees; the examples of ``Task`` are their roots."""

    trees: dict[str, Trees]  # by split
    node_targets: NDArray[np.float32]  # (nodes of train, classes)
    node_weights: NDArray[np.float32]  # (nodes of train,)


def load_task(
    experiment: str, recipe: Recipe, sources: dict[str, Source], processes: int = 1
) -> Task:
    """Read the corpus of ``experiment`` with the ``text`` and ``data`` settings of ``recipe``.

    ``sources`` are its splits, from ``find_corpus``; ``processes`` tokenize.
    """
    data, smoothing = recipe.data, recipe.config.training.label_smoothing
    if smoothing and (data.soft_targets if experiment == "sst2" else data.neighbour_smoothing):
        raise ConfigError(
            f"label_smoothing={smoothing} has no effect on the soft "
            "targets that data asks for; take one or the other"
        )
    task: Task
    match experiment:
        case "sst2" | "sst5" if recipe.config.model.kind in TREE_KINDS:
            task = _load_trees(sources, recipe, binary=experiment == "sst2")
        case "sst2" | "sst5":
            task = _load_sst(sources, recipe, binary=experiment == "sst2")
        case "trec":
            task = _load_trec(sources, recipe.config.text)
        case _:
            task = _load_twitter(sources, recipe, processes)
    # Data that cannot train or test a model, such as a bad sample, is refused.
    for part, count in task.sizes.items():
        if part in sources and not count:
            raise DataError(f"{sources[part].path} has no example of {' or '.join(task.classes)}")
    targets = task.train.targets
    if targets.ndim == 1 and len(np.unique(targets)) < 2:
        only = task.classes[int(targets[0])]
        raise DataError(f"{sources['train'].path} has examples of one label only, {only}")
    return task


def _load_sst(sources: dict[str, Source], recipe: Recipe, *, binary: bool) -> Task:
    text, data, copies = recipe.config.text, recipe.data, recipe.distillation.swaps
    trees = read_trees(sources["train"].path)
    # Always the same swaps: what varies between seeds is the training.
    new_sentences = swap_subtrees(trees, data.swaps, np.random.default_rng(0))
    phrases = [
        (phrase, place == 0)
        for tree in [*trees, *([sentence] for sentence in new_sentences)]
        for place, phrase in enumerate(tree if data.phrases else tree[:1])
        if not (binary and not data.soft_targets and phrase.label == NEUTRAL)
    ]
    labels = np.array([phrase.label for phrase, _ in phrases])
    whole = np.array([is_whole for _, is_whole in phrases])
    weights = np.where(whole, data.sentence_weight, 1.0) if data.sentence_weight != 1 else None
    if data.authors_tokens:
        # 15,447 types of the training sentences, by first occurrence. One is the empty string, so
        # tokens are encoded and not a text. Unknown words, which only dev and test have, are
        # dropped; a sentence without any other keeps one.
        types = dict.fromkeys(token for tree in trees for token in authors_tokens(tree[0].words))
        encoder = Encoder(Tokenizer("whitespace"), Vocabulary(list(types)))

        def encode(phrases: Sequence[Phrase]) -> Sentences:
            ids = [encoder.vocabulary.ids(authors_tokens(phrase.words)) for phrase in phrases]
            known = [[one for one in sentence if one != UNKNOWN] for sentence in ids]
            return Sentences.from_lists(
                [some or every[:1] for some, every in zip(known, ids, strict=True)]
            )

        sentences = encode([phrase for phrase, _ in phrases])
    else:
        encoder, sentences = Encoder.learn([" ".join(phrase.words) for phrase, _ in phrases], text)
        new_words = sentences.new_words

        def encode(phrases: Sequence[Phrase]) -> Sentences:
            nonlocal new_words
            found = encoder.encode_all([" ".join(phrase.words) for phrase in phrases], new_words)
            new_words = found.new_words
            return found

    def held_out(part: str) -> Examples:
        whole_sentences = [tree[0] for tree in read_trees(sources[part].path)]
        chosen = [p for p in whole_sentences if not (binary and p.label == NEUTRAL)]
        truth = np.array([phrase.label for phrase in chosen])
        return Examples(encode(chosen), (truth > NEUTRAL).astype(np.int64) if binary else truth)

    targets = _targets(labels, data, binary=binary)
    return Task(
        BINARY_CLASSES if binary else FINE_CLASSES,
        encoder,
        Examples(sentences, targets, None if weights is None else weights / weights.mean()),
        held_out("dev"),
        held_out("test"),
        encode(swap_subtrees(trees, copies, np.random.default_rng(1))) if copies else None,
    )


def _load_trees(sources: dict[str, Source], recipe: Recipe, *, binary: bool) -> TreeTask:
    text, data = recipe.config.text, recipe.data
    read = {part: read_trees(source.path) for part, source in sources.items()}
    if binary:  # a tree whose root is neutral is trained on, for its phrases, but not evaluated
        for part in ("dev", "test"):
            read[part] = [tree for tree in read[part] if tree[0].label != NEUTRAL]

    def words(tree: Sequence[Phrase]) -> list[str]:
        return [word.lower() if text.lowercase else word for word in tree[0].words]

    counts = Counter(word for tree in read["train"] for word in words(tree))
    vocabulary = Vocabulary.most_frequent(list(counts), np.array([*counts.values()]), text)
    parts, examples = {}, {}
    for part, trees in read.items():
        ids = [vocabulary.ids(words(tree)) for tree in trees]
        parts[part] = Trees(trees, ids)
        truth = parts[part].labels[parts[part].roots]
        examples[part] = Examples(
            Sentences.from_lists(ids), (truth > NEUTRAL).astype(np.int64) if binary else truth
        )
    train, classes = parts["train"], BINARY_CLASSES if binary else FINE_CLASSES
    targets = target_distributions(_targets(train.labels, data, binary=binary), len(classes))
    weights = np.ones(len(targets), np.float32)
    if binary and not data.soft_targets:
        weights[train.labels == NEUTRAL] = 0
    weights[train.roots] *= data.sentence_weight
    return TreeTask(
        classes,
        Encoder(Tokenizer("whitespace"), vocabulary),
        examples["train"],
        examples["dev"],
        examples["test"],
        trees=parts,
        node_targets=targets,
        node_weights=weights / weights.mean(),
    )


def _targets(labels: Ints, data: DataConfig, *, binary: bool) -> NDArray[Any]:
    """Class numbers of the labels 0 to 4, or with soft targets distributions over the classes."""
    if not (data.soft_targets if binary else data.neighbour_smoothing):
        return (labels > NEUTRAL).astype(np.int64) if binary else labels
    if binary:
        positive = np.array(data.soft_targets, np.float32)[labels]
        return np.stack([1 - positive, positive], axis=1)
    count = len(FINE_CLASSES)
    distance = np.abs(np.arange(count)[:, None] - np.arange(count))
    neighbours = (distance == 1) / (distance == 1).sum(axis=1, keepdims=True)
    rows = (1 - data.neighbour_smoothing) * np.eye(count) + data.neighbour_smoothing * neighbours
    smoothed: NDArray[np.float32] = rows[labels].astype(np.float32)
    return smoothed


def _load_trec(sources: dict[str, Source], text: TextConfig) -> Task:
    train, test = read_trec(sources["train"].path), read_trec(sources["test"].path)
    test = test.with_classes(train.classes)
    encoder, sentences = Encoder.learn(train.texts, text)
    classes = tuple(map(str, train.classes))
    test_set = Examples(encoder.encode_all(test.texts, sentences.new_words), test.targets)
    return Task(classes, encoder, Examples(sentences, train.targets), None, test_set)


def _load_twitter(sources: dict[str, Source], recipe: Recipe, processes: int) -> Task:
    def hold_out(count: int) -> Ints:
        # Always the same tweets, so that every run and recipe is selected on the same dev set.
        order = np.random.default_rng(0).permutation(count)
        return np.sort(order[: round(recipe.data.held_out * count)])

    encoder, train, dev = load_or_encode(
        [sources["train"].path],
        f"sentiment140 {sources['train'].member}",
        lambda: sentiment140.iterate_sentiment140(*sources["train"]),
        recipe.config.text,
        sentiment140.CLASSES,
        Store(cache_folder()),
        processes,
        hold_out,
    )
    test = list(sentiment140.iterate_sentiment140(*sources["test"]))
    sentences = encoder.encode_all([text for text, _ in test], dev.sentences.new_words)
    test_set = Examples(sentences, np.array([target for _, target in test]))
    return Task(sentiment140.CLASSES, encoder, train, dev, test_set)
