"""Tasks whose students learn from a pretrained encoder, which is fine-tuned on the training texts.

One teacher serves all seeds, or each seed has its own. It labels the training texts, unlabelled
text of the domain, and texts generated from both; its labels are cached on disk for later runs.
Sentences of dev and test are left out of the unlabelled and generated texts. For SST and TREC,
unlabelled text is tokenized as in the Penn Treebank, like these corpora; for Twitter that is left
to the tokenizer of tweets. TREC has no dev set: settings are chosen with a tenth of the questions
held out, and the final teacher and students learn all of them.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TextConfig
from dcnn.data.augment import augment
from dcnn.data.batching import Examples
from dcnn.data.corpora import sentiment140
from dcnn.data.corpora.registry import Source
from dcnn.data.corpora.sst import NEUTRAL, Phrase, read_trees, swap_subtrees
from dcnn.data.corpora.trec import read_trec
from dcnn.data.corpora.unlabelled import iterate_unlabelled, treebank_tokens
from dcnn.data.labels import LabelledTexts
from dcnn.data.split import hold_out
from dcnn.experiments.recipes import DistillationConfig, Recipe
from dcnn.experiments.tasks import BINARY_CLASSES, FINE_CLASSES, Task
from dcnn.text.encoder import Encoder
from dcnn.training import distillation
from dcnn.training.encoders import EncoderTeacher, FineTuning
from dcnn.training.teachers import Report

Sources = dict[str, Source]
# Train, dev, test, further texts of the corpus without a label, and texts made of its own.
Parts = tuple[LabelledTexts, LabelledTexts, LabelledTexts, list[str], list[str]]
DEV_FRACTION = 0.1  # of the TREC questions
LONGEST_SPAN = 16  # words


def read_texts(
    experiment: str,
    recipe: Recipe,
    sources: Sources,
    find: Callable[[str], Sources],
    *,
    with_dev: bool = True,
) -> Parts:
    """The texts that students learn, and dev and test; ``find`` gives a corpus by its name.

    Without dev, the TREC questions that are held out otherwise are among the training texts.
    """
    settings = recipe.distillation
    if experiment == "trec":
        parts = _trec(sources, with_dev)
    elif experiment == "twitter":
        parts = _twitter(sources, recipe.data.held_out)
    else:
        parts = _sst(sources, settings.swaps, binary=experiment == "sst2")
    train, dev, test, unlabelled, made = parts
    made += augment(train.texts, settings.copies)
    split = str.split if experiment == "twitter" else treebank_tokens
    for name in settings.unlabelled:
        own = [" ".join(split(text)) for text in iterate_unlabelled(find(name)["unlabelled"].path)]
        unlabelled += own
        made += _spans(own, settings.spans)
    return train, dev, test, unlabelled, made


def label_task(
    parts: Parts,
    settings: DistillationConfig,
    text: TextConfig,
    device: str,
    teacher_seed: int = 0,
    processes: int = 1,
    report: Report = lambda *_: None,
) -> Task:
    """Let the teacher learn the training texts and label the others; ``processes`` tokenize."""
    train, dev, test, unlabelled, made = parts
    teacher = EncoderTeacher(
        settings.encoder,
        train,
        dev if len(dev) else None,
        mode="finetune",
        device=device,
        settings=FineTuning(
            settings.fine_tuning_epochs, settings.fine_tuning_batch, seed=teacher_seed
        ),
        report=report,
    )
    labels = distillation.pseudo_label(
        teacher,
        train,
        dev,
        test,
        unlabelled + made,
        copies=0,
        teacher_weight=settings.teacher_weight,
        cache=distillation.cache(),
        report=report,
    )
    notes = {
        "name": teacher.name,
        "weights_sha256": teacher.weights_sha256,
        "seed": teacher_seed,
        "dev_accuracy": _accuracy(labels.dev, dev),
        "test_accuracy": _accuracy(labels.test, test),
        "texts": {  # before those of dev and test, and repeated ones, are left out
            "labelled": len(train),
            "unlabelled": len(unlabelled),
            "augmented": len(made),
            "learned": len(labels.examples),
        },
    }
    encoder, sentences = Encoder.learn(labels.examples.texts, text, processes)
    dev_ids = encoder.encode_all(dev.texts, sentences.new_words)
    test_ids = encoder.encode_all(test.texts, dev_ids.new_words)
    return Task(
        tuple(map(str, test.classes)),
        encoder,
        Examples(sentences, labels.examples.targets),
        Examples(dev_ids, dev.targets) if len(dev) else None,
        Examples(test_ids, test.targets),
        notes={"teacher": notes},  # on it and on the texts, for the results
    )


def _accuracy(probabilities: NDArray[np.float32], data: LabelledTexts) -> float | None:
    return float((probabilities.argmax(axis=1) == data.targets).mean()) if len(data) else None


def _sst(sources: Sources, swaps: int, *, binary: bool) -> Parts:
    """The phrases of the training trees once each; neutral ones are unlabelled if binary."""
    trees = read_trees(sources["train"].path)
    labels = {_text(phrase): phrase.label for tree in reversed(trees) for phrase in tree}

    def labelled(pairs: Sequence[tuple[str, int]]) -> LabelledTexts:
        kept = [(text, y) for text, y in pairs if not (binary and y == NEUTRAL)]
        targets = np.array([y for _, y in kept], np.int64)
        classes = BINARY_CLASSES if binary else FINE_CLASSES
        targets = (targets > NEUTRAL).astype(np.int64) if binary else targets
        return LabelledTexts([text for text, _ in kept], targets, classes)

    dev, test = (
        labelled([(_text(tree[0]), tree[0].label) for tree in read_trees(sources[part].path)])
        for part in ("dev", "test")
    )
    neutral = [text for text, label in labels.items() if binary and label == NEUTRAL]
    swapped = list(map(_text, swap_subtrees(trees, swaps, np.random.default_rng(1))))
    return labelled(list(labels.items())), dev, test, neutral, swapped


def _text(phrase: Phrase) -> str:
    """The words as a text; the Treebank writes a slash and an asterisk with a backslash."""
    return " ".join(phrase.words).replace("\\/", "/").replace("\\*", "*")


def _trec(sources: Sources, with_dev: bool) -> Parts:
    train, test = read_trec(sources["train"].path), read_trec(sources["test"].path)
    own, dev = train, train.select(np.empty(0, np.int64))
    if with_dev:
        own, dev = hold_out(train, DEV_FRACTION, seed=0)
    return own, dev, test.with_classes(train.classes), [], []


def _twitter(sources: Sources, held_out: float) -> Parts:
    tweets = sentiment140.read_sentiment140(*sources["train"])
    order = np.random.default_rng(0).permutation(len(tweets))  # as without a teacher
    dev, train = np.split(order, [round(held_out * len(order))])
    test = sentiment140.read_sentiment140(*sources["test"])
    return tweets.select(np.sort(train)), tweets.select(np.sort(dev)), test, [], []


def _spans(sentences: Sequence[str], share: float) -> list[str]:
    """N-grams of random length and place, ``share`` per sentence of six words or more."""
    rng = np.random.default_rng(2)
    found = []
    for sentence in sentences:
        words = sentence.split()
        for _ in range(rng.poisson(share) if len(words) >= 6 else 0):
            size = int(rng.integers(2, min(LONGEST_SPAN, len(words))))
            first = int(rng.integers(len(words) - size + 1))
            found.append(" ".join(words[first : first + size]))
    return found
