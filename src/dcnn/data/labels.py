"""Texts with their labels: parsed, checked and numbered, from files and from memory alike.

A text has one label, or it is multi-label: a list, a cell with a separator, indicator columns or an
indicator matrix of 0 and 1. A multi-label text may have no label at all, and a label that is given
twice counts once. All texts of a data set have one label each, or all are multi-label.

Instead of a label a text may have probabilities of labels, such as those of another model: an
object of JSON, a struct or map of Parquet, or a column per label. Single-label ones sum to 1.

Labels of files lose the white space around them and are normalized to Unicode form C, so that two
that look alike are equal; texts stay as they are, and may be empty.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dcnn.data.columns import did_you_mean, is_frame, is_missing, shown, shown_names, values_of
from dcnn.errors import DataError
from dcnn.text.tokenizer import UNPRINTABLE

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_LABEL = 1000  # characters

_YES = ("1", "1.0", "true", "yes")
_NO = ("0", "0.0", "false", "no")
_KINDS = {str: "a string", bool: "a boolean", int: "an integer", float: "a number with a fraction"}
_TOLERANCE = 0.01  # of a sum of probabilities, which may be rounded
_SEVERAL = (list, tuple, set, frozenset, np.ndarray)

Label = str | int | float | bool


class Place(NamedTuple):
    """Where a row is: the file, and its line or row; as a string, for messages."""

    source: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}"


@dataclass(frozen=True)
class LabelledTexts:
    """N examples from any reader, as training and evaluation take them."""

    texts: Sequence[str]
    targets: NDArray[Any]  # (N,) class numbers, or (N, classes) probabilities; 0/1 if multi-label
    classes: Sequence[Label]  # by class number
    weights: NDArray[np.float32] | None = None  # (N,), or none if all examples count the same
    multi_label: bool = False  # whether a text may have any number of labels
    source: str = "the data"  # the file, folder, pattern or argument, for messages
    places: Sequence[Place] | None = None  # of the examples, or none if they are counted from 0

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def class_numbers(self) -> NDArray[np.int64]:
        """(N,) the class of each text, or the most probable one; not for multi-label."""
        return self.targets if self.targets.ndim == 1 else self.targets.argmax(axis=1)

    @cached_property
    def labels(self) -> list[Any]:
        """The label of each text, or the most probable one; the tuple of them if multi-label."""
        if self.multi_label:
            rows = (np.flatnonzero(row >= 0.5).tolist() for row in self.targets)
            return [tuple(self.classes[number] for number in row) for row in rows]
        return [self.classes[number] for number in self.class_numbers.tolist()]

    def with_hard_labels(self) -> "LabelledTexts":
        """The same examples, each with its most probable label in place of probabilities.

        If multi-label, each text has the labels with a probability of 0.5 or more.
        """
        if self.multi_label:
            return replace(self, targets=(self.targets >= 0.5).astype(np.float32))
        return replace(self, targets=self.class_numbers)

    def where(self, index: int) -> str:
        """Where an example is, for messages."""
        return f"{self.source}, text {index}" if self.places is None else str(self.places[index])

    def select(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> "LabelledTexts":
        """The examples at ``indices``, in that order."""
        chosen = np.asarray(indices, np.int64)
        return replace(
            self,
            texts=[self.texts[i] for i in chosen.tolist()],
            targets=self.targets[chosen],
            weights=None if self.weights is None else self.weights[chosen],
            places=None if self.places is None else [self.places[i] for i in chosen.tolist()],
        )

    def with_classes(self, classes: Sequence[Label]) -> "LabelledTexts":
        """The same examples, numbered by the classes of the training set, which hold all labels."""
        numbers = {label: number for number, label in enumerate(classes)}
        new_numbers = np.array([numbers.get(label, -1) for label in self.classes], np.int64)
        examples, old_numbers = np.arange(len(self)), self.targets
        if self.targets.ndim == 2:
            examples, old_numbers = np.nonzero(self.targets)
        targets = found = new_numbers[old_numbers]
        if (found < 0).any():
            place = (found < 0).argmax()
            label, names = self.classes[old_numbers[place]], [str(label) for label in classes]
            raise DataError(
                f"{self.where(examples[place])}: the label {shown(label)} is not in the training "
                f"set, which has {shown_names(names)}; correct it, drop the text, or train with it"
                f"{did_you_mean(str(label), names)}"
            )
        if self.targets.ndim == 2:
            targets = np.zeros((len(self), len(classes)), self.targets.dtype)
            targets[examples, found] = self.targets[examples, old_numbers]
        return replace(self, targets=targets, classes=tuple(classes))


def number_labels(
    texts: Sequence[str],
    labels: Sequence[Any],
    *,
    classes: Sequence[Label] | None = None,
    multi_label: bool = False,
    source: str = "the data",
    places: Sequence[Place] | None = None,
    weights: NDArray[np.float32] | None = None,
) -> LabelledTexts:
    """Texts with their labels, or lists of labels; ``classes`` are by default these, sorted.

    A label, or a list of them, may be a mapping from labels to their probabilities instead.
    """
    if classes is None:
        classes = sorted(occurring_labels(labels))
    numbers = {label: number for number, label in enumerate(classes)}
    targets: NDArray[Any]
    if multi_label or any(isinstance(label, Mapping) for label in labels):
        targets = np.zeros((len(texts), len(classes)), np.float32)
        for row, given in zip(targets, labels, strict=True):
            if isinstance(given, Mapping):
                total = 1 if multi_label else sum(given.values())
                for label, share in given.items():
                    row[numbers[label]] = share / total
                continue
            for label in given if isinstance(given, tuple | list) else (given,):
                row[numbers[label]] = 1
    else:
        targets = np.array([numbers[label] for label in labels], np.int64)
    return LabelledTexts(texts, targets, tuple(classes), weights, multi_label, source, places)


def occurring_labels(labels: Iterable[Any]) -> set[Any]:
    """The distinct labels of rows that have one, a list of them, or probabilities by label."""
    several = (Mapping, tuple, list)
    return {label for one in labels for label in (one if isinstance(one, several) else (one,))}


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """Distinct labels of files: by value if all are whole numbers, else by alphabet."""
    distinct = set(labels)
    if all(label.removeprefix("-").isdecimal() and len(label) < 20 for label in distinct):
        return sorted(distinct, key=lambda label: (int(label), label))
    return sorted(distinct)


@dataclass
class LabelFormat:
    """How the rows read so far write their labels; a row that differs is refused.

    Labels are strings in CSV, but have types elsewhere: integers in one file and strings in another
    are likely two codings. A single file may mix types. Single labels and lists mix where the user
    says whether the data is multi-label; probabilities mix with either, before or after them.
    """

    multi_label: bool | None = None  # whether rows have lists of labels; none before the first such
    source: str = ""  # the file that decided it
    asked: bool | None = None  # what the user says: --multi-label or --single-label
    kinds: dict[type, str] = field(default_factory=dict)  # each with the file that had it first
    odd_sum: DataError | None = None  # of probabilities, wrong unless the data is multi-label

    def parse(
        self, place: Place, column: str, value: object, separator: str | None, *, typed: bool
    ) -> str | tuple[str, ...] | dict[str, float]:
        """The label of a row, or its labels if multi-label, or its probabilities by label."""
        is_list = isinstance(value, list) or separator is not None
        if isinstance(value, dict):
            return self._parse_object(place, column, value)
        if self.multi_label is None:
            self.multi_label, self.source = is_list, place.source
            self.check_sums()
        if value is None and (self.multi_label or is_list):
            raise DataError(
                f"{place}: the labels are missing ({value}); write an empty list where none applies"
            )
        if self.multi_label != is_list and self.asked is None:
            names = {True: "a list of labels", False: "a single label"}
            raise DataError(
                f"{place}: the label {shown(value)} is {names[is_list]}, where {self.source} "
                f"has {names[not is_list]}; write the labels of all rows alike, split strings "
                "with --labels-separator, or pass --multi-label"
            )
        several: Sequence[object] = value if isinstance(value, list) else [value]
        if typed:
            for label in several:
                self._check_kind(place, label)
        if isinstance(value, str) and separator:
            several = [part for part in value.split(separator) if part.strip()]
        labels = tuple(dict.fromkeys(parse_label(place, column, label) for label in several))
        if self.multi_label:
            return labels
        if len(labels) != 1:
            raise DataError(
                f"{place}: {shown(value)} has {len(labels)} labels, and --single-label allows one "
                "per row; correct the row, or leave out --single-label"
            )
        return labels[0]

    def _parse_object(
        self, place: Place, column: str, value: dict[Any, object]
    ) -> dict[str, float]:
        named = {parse_label(place, column, name): share for name, share in value.items()}
        if len(named) < len(value):
            raise DataError(
                f"{place}: two names in {shown(value)} are one label without the white space "
                "around them; give each label one probability"
            )
        found = parse_probabilities(place, named)
        self.odd_sum = self.odd_sum or _sum_error(place, found)
        if self.multi_label is False:
            self.check_sums()
        return found

    def check_sums(self) -> None:
        """Check, unless the data is multi-label, that the probabilities of each row sum to 1."""
        if self.odd_sum is not None and not self.multi_label:
            raise self.odd_sum

    def _check_kind(self, place: Place, label: object) -> None:
        kind = type(label)
        if kind in self.kinds or kind not in _KINDS:
            return
        for other, source in self.kinds.items():
            if source != place.source:
                raise DataError(
                    f"{place}: the label {shown(label)} is {_KINDS[kind]}, where {source} has "
                    f"{_KINDS[other]}; write the labels of all files alike"
                )
        self.kinds[kind] = place.source


def parse_label(place: Place, column: str, value: object) -> str:
    """A value of a file as a label, never empty."""
    if isinstance(value, str):
        label = check_unicode(place, value).strip()
        check_label(str(place), label)
        label = unicodedata.normalize("NFC", label)
    elif isinstance(value, bool):
        label = "true" if value else "false"
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        label = repr(value)
    else:
        raise DataError(
            f"{place}: the label in {shown(column)} is {shown(value)}; "
            "it must be a string, a number, true or false"
        )
    if not label:
        raise DataError(
            f"{place}: the label in {shown(column)} is empty; give the row a label or drop it, or "
            f"pass --labels-separator where rows may have several or none"
        )
    return label


def check_label(where: str, label: object) -> None:
    """Check that a label can be stored, and printed without harm."""
    fault = ""
    if isinstance(label, float) and not math.isfinite(label):
        fault = "is not a finite number, so it cannot be saved"
    elif isinstance(label, str) and len(label) > MAX_LABEL:
        fault = f"has {len(label):,} characters, above {MAX_LABEL:,}; is it a text?"
    elif isinstance(label, str) and (found := UNPRINTABLE.search(label)):
        fault = f"holds {found[0]!r}, which cannot be printed; remove it"
    if fault:
        raise DataError(f"{where}: the label {shown(label)} {fault}")


def parse_indicators(
    place: Place, values: Mapping[str, object], single_label: bool
) -> tuple[str, ...] | dict[str, float]:
    """The label columns that hold a 1; or probabilities, if single-label or not all are 0/1."""
    words = {column: str(value).strip().lower() for column, value in values.items()}
    if not single_label and all(word in (*_YES, *_NO) for word in words.values()):
        return tuple(column for column, word in words.items() if word in _YES)
    known = dict.fromkeys(_YES, 1) | dict.fromkeys(_NO, 0)
    shares = {column: known.get(words[column], value) for column, value in values.items()}
    found = parse_probabilities(place, shares, "label column")
    if single_label and (error := _sum_error(place, found)):
        raise error
    return found


def parse_probabilities(
    place: Place, values: Mapping[str, object], name: str = "label"
) -> dict[str, float]:
    """Probabilities by label, called ``name`` in messages; a missing one is 0."""
    found: dict[str, float] = {}
    for label, value in values.items():
        share = math.nan
        with suppress(TypeError, ValueError):
            share = 0.0 if value is None else float(value)  # type: ignore[arg-type]
        if not 0 <= share <= 1:
            raise DataError(
                f"{place}: the {name} {shown(label)} holds {shown(value)}; it must be 1 where the "
                "label applies, and else 0, or a probability"
            )
        found[label] = share
    return found


def _sum_error(
    place: Place,
    found: Mapping[str, float],
    remedy: str = "; where the data is multi-label, pass --multi-label",
) -> DataError | None:
    """What is wrong with probabilities of a single-label text that do not sum to about 1."""
    total = sum(found.values())
    if abs(total - 1) <= _TOLERANCE:
        return None
    given = f"the probabilities of {shown_names(found)}" if found else "probabilities of no label"
    return DataError(
        f"{place}: {given} sum to {total:.4g}; those of single-label data must sum to 1{remedy}"
    )


def check_unicode(place: Place, value: str) -> str:
    r"""``value`` itself; a lone surrogate, such as ``\ud83d`` in JSON, is an error."""
    if not value.isascii() and (half := LONE_SURROGATE.search(value)):
        raise DataError(
            f"{place}: {half[0]!r} is half of a surrogate pair and no character; write the whole "
            "pair or leave it out"
        )
    return value


def check_training_labels(examples: LabelledTexts, *, splits: bool) -> None:
    """Check that a classifier can learn from these labels, with a dev set that is split from them.

    A label of a multi-label set with one example stays in training.
    """
    labels = examples.labels
    if not examples.multi_label:
        source, counts = examples.source, Counter(labels)
        check_label_counts(
            counts, source, lambda label: examples.where(labels.index(label)), splits
        )
    elif len(found := set(chain.from_iterable(labels))) < 2:
        names = f"the label {shown(found.pop())} alone" if found else "no label at all"
        raise DataError(
            f"{examples.source} has {names}; add rows with others, choose with --label-column, "
            "or split its cells with --labels-separator"
        )


def check_label_counts(
    counts: Mapping[Any, int], source: str, where: Callable[[Any], str], splits: bool
) -> None:
    """Check that there are two labels or more, each twice if a dev set is split from them."""
    if len(counts) == 1:
        raise DataError(
            f"{source}: every row has the label {shown(*counts)}, and a classifier needs two or "
            "more; add rows with another label, or choose with --label-column"
        )
    single = [label for label, count in counts.items() if count == 1]
    if splits and single:
        others = f" (one of {len(single)} such labels)" if len(single) > 1 else ""
        raise DataError(
            f"{where(single[0])}: the label {shown(single[0])} has a single example{others}, "
            "too few for both training and the dev set held out from it; "
            "add examples, drop the label, or give a dev file"
        )


def check_form(examples: LabelledTexts, *, multi_label: bool, of: str) -> None:
    """Check that ``examples`` are multi-label if and only if another set, called ``of``, is."""
    if examples.multi_label != multi_label:
        forms = ("has one label per row", "is multi-label")
        several = "lists, --labels-separator or --label-columns"
        remedy = several if multi_label else "a column with one label per row"
        raise DataError(
            f"{examples.source} {forms[not multi_label]}, where {of} {forms[multi_label]}; "
            f"give {remedy}"
        )


def label_texts(texts: Sequence[str], y: Any, source: str = "X") -> LabelledTexts:
    """Texts in memory with their labels ``y``: one each, a list each, or an indicator matrix.

    A label or a list may be a mapping from labels to their probabilities instead.
    """
    is_array = isinstance(y, np.ndarray | np.generic | str) or is_frame(y)
    if not is_array and isinstance(y, Iterable) and getattr(y, "ndim", 1) == 1:
        y = values_of(y)
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == object:
        y = y.tolist()  # which may be lists of labels
    if getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:  # numpy's, pandas', or a sparse matrix
        classes = tuple(map(str, y.columns)) if is_frame(y) else None
        matrix = y.toarray() if hasattr(y, "toarray") else np.asarray(y)
        examples = _from_matrix(texts, matrix, classes)
    elif isinstance(y, list | tuple) and any(isinstance(one, Mapping) for one in y):
        examples = _from_mappings(texts, y)
    elif isinstance(y, list | tuple) and any(isinstance(one, _SEVERAL) for one in y):
        examples = _from_lists(texts, y)
    else:
        examples = _from_single(texts, y, is_array)
    for label in examples.classes:
        check_label(source, label)
    return replace(examples, source=source)


def _check_count(texts: Sequence[str], count: int, what: str) -> None:
    if len(texts) != count:
        raise DataError(f"X has {len(texts)} texts and y {count} {what}; give one each")


def _from_single(texts: Sequence[str], y: Any, is_array: bool) -> LabelledTexts:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise DataError(f"y must be one label per text; got an array of shape {labels.shape}")
    _check_count(texts, len(labels), "labels")
    # numpy turns a missing label among strings into "nan", so the original values are checked.
    for index, label in enumerate(labels.tolist() if is_array else y):
        if is_missing(label):
            raise DataError(
                f"label {index} is missing ({label!r}); give the text a label, or drop it"
            )
    for label in set(labels.tolist()):
        if not isinstance(label, str | int | float):
            raise DataError(f"the labels must be strings, numbers or booleans; got {label!r}")
    classes, targets = np.unique(labels, return_inverse=True)
    return LabelledTexts(texts, targets, tuple(classes.tolist()))


def _from_matrix(
    texts: Sequence[str], matrix: NDArray[Any], classes: Sequence[Label] | None = None
) -> LabelledTexts:
    _check_count(texts, len(matrix), "rows")
    odd = matrix[~np.isin(matrix, (0, 1))]
    classes = classes or tuple(range(matrix.shape[1]))
    if len(odd) and (matrix >= 0).all() and (abs(matrix.sum(axis=1) - 1) <= _TOLERANCE).all():
        shares = matrix / matrix.sum(axis=1, keepdims=True)
        return LabelledTexts(texts, shares.astype(np.float32), classes)
    if len(odd):
        raise DataError(
            "y is a matrix with a column per label; it must hold 0 and 1 only, or probabilities "
            f"that sum to 1 in each row; it holds {odd[0]!r}"
        )
    return LabelledTexts(texts, matrix.astype(np.float32), classes, multi_label=True)


def _from_lists(texts: Sequence[str], y: Sequence[Any]) -> LabelledTexts:
    for index, labels in enumerate(y):
        if not isinstance(labels, _SEVERAL):
            raise DataError(
                f"label {index} is {labels!r:.60}, where others are lists; give every text a list "
                "of labels, empty where none applies"
            )
    lists = [list(labels) for labels in y]
    flags = (type(one) in (int, bool, float) and one in (0, 1) for row in lists for one in row)
    if len({len(row) for row in lists}) == 1 and len(lists[0]) > 1 and all(flags):
        return _from_matrix(texts, np.array(lists))  # as in [[0, 1], [1, 1]]
    _check_count(texts, len(lists), "lists of labels")
    return number_labels(texts, lists, classes=_classes_of(lists), multi_label=True)


def _from_mappings(texts: Sequence[str], y: Sequence[Any]) -> LabelledTexts:
    _check_count(texts, len(y), "labels")
    multi_label = any(isinstance(one, _SEVERAL) for one in y)
    rows: list[Any] = []
    for index, given in enumerate(y):
        if isinstance(given, Mapping):
            place = Place("y", index, "text")
            rows.append(parse_probabilities(place, given))
            if not multi_label and (error := _sum_error(place, rows[-1], remedy="")):
                raise error
        elif multi_label != isinstance(given, _SEVERAL):
            raise DataError(
                f"label {index} is {given!r:.60}, where others are lists; give every text a list "
                "of labels, or probabilities by label"
            )
        else:
            rows.append(list(given) if multi_label else [given])
    return number_labels(texts, rows, classes=_classes_of(rows), multi_label=multi_label)


def _classes_of(rows: Sequence[Iterable[Any]]) -> list[Any]:
    for index, row in enumerate(rows):
        for label in row:
            if is_missing(label) or not isinstance(label, str | int | float | np.generic):
                raise DataError(
                    f"label {index} holds {label!r:.60}; "
                    "the labels must be strings, numbers or booleans"
                )
    distinct = {label for row in rows for label in row}
    if len({isinstance(label, str) for label in distinct}) > 1:
        raise DataError("some of the labels are strings and some are not; give all of one type")
    classes: list[Any] = np.array(sorted(distinct)).tolist()
    return classes
