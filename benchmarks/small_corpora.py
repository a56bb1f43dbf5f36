"""Small corpora of several languages and tasks, as they are published, in a folder of the user's.

The folder holds ``banking77/{train,test}.csv``, ``mr/rt-polarity.*``, ``sms_spam/sms.tsv``,
``subj/subj.*`` and ``umsab/<language>/{train,val,test}_{text,labels}.txt``. Of those without a test
set a tenth, always the same, is kept for one.
"""

from pathlib import Path
from typing import NamedTuple

from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.data.readers import TableOptions, read_labelled
from dcnn.data.split import hold_out

LANGUAGES = ("arabic", "english", "french", "german", "hindi", "italian", "portuguese", "spanish")
CORPORA = (*(f"umsab-{name}" for name in LANGUAGES), "banking77", "subj", "sms", "mr")


class Splits(NamedTuple):
    """A corpus; ``dev`` is none where it is not published."""

    train: LabelledTexts
    dev: LabelledTexts | None
    test: LabelledTexts


def load(name: str, folder: Path) -> Splits:
    """One of ``CORPORA``."""
    match name.split("-"):
        case ["banking77"]:
            train, test = (
                read_labelled(folder / name / f"{part}.csv", TableOptions())
                for part in ("train", "test")
            )
            return Splits(train, None, test)
        case ["sms"]:
            path = folder / "sms_spam" / "sms.tsv"
            lines = path.read_text(encoding="utf-8").split("\n")
            pairs = [line.split("\t", 1) for line in lines if line]
            return _parted(texts=[text for _, text in pairs], labels=[label for label, _ in pairs])
        case ["mr"]:
            return _two_files(folder / name, "rt-polarity.neg", "rt-polarity.pos")
        case ["subj"]:
            return _two_files(folder / name, "subj.objective", "subj.subjective")
        case ["umsab", language]:
            return Splits(*(_lines(folder / "umsab" / language, part) for part in _UMSAB_PARTS))
    raise ValueError(f"corpus {name!r} must be one of {', '.join(CORPORA)}")


def load_all(name: str, folder: Path) -> tuple[LabelledTexts, LabelledTexts]:
    """Training and test set of a corpus; a published dev set is part of the former."""
    train, dev, test = load(name, folder)
    if dev is not None:
        texts, labels = [*train.texts, *dev.texts], [*train.labels, *dev.labels]
        train = number_labels(texts, labels, source=name)
    return train, test.with_classes(train.classes)


_UMSAB_PARTS = ("train", "val", "test")


def _lines(folder: Path, part: str) -> LabelledTexts:
    texts, labels = (
        (folder / f"{part}_{what}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
        for what in ("text", "labels")
    )
    return _labelled(texts, labels)


def _two_files(folder: Path, first: str, second: str) -> Splits:
    """One file per class, one text per line, in latin-1."""
    parts = [
        [line for line in (folder / name).read_bytes().decode("latin-1").split("\n") if line]
        for name in (first, second)
    ]
    texts = [text for part in parts for text in part]
    labels = [name for name, part in zip((first, second), parts, strict=True) for _ in part]
    return _parted(texts, labels)


def _parted(texts: list[str], labels: list[str]) -> Splits:
    train, test = hold_out(_labelled(texts, labels), 0.1, 0)
    return Splits(train, None, test)


def _labelled(texts: list[str], labels: list[str]) -> LabelledTexts:
    if len(texts) != len(labels):
        raise ValueError(f"{len(texts)} texts and {len(labels)} labels do not belong together")
    return number_labels(texts, labels, source="corpus")
