"""Several labels a row: in a list, in a cell with a separator, or in columns of noughts and ones.

A row may have no label at all: an empty list, an empty cell, or noughts alone. A label that is
given twice counts once. All rows of a corpus have one label each, or all have such sets.


Labels in memory, as ``DCNNClassifier`` is given them: one a text, or sets of them.

Sets are a matrix of noughts and ones, or a list of labels for each text.

"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.data.columns import LABEL_OPTION, did_you_mean, shown, shown_names
from dcnn.data.frames import is_frame, is_missing, values_of
from dcnn.data.records import Place, label_from, value_of
from dcnn.errors import DataError

SEPARATOR_OPTION = "--labels-separator"
FLAGS_OPTION = "--label-columns"

_YES = ("1", "1.0", "true", "yes")
_NO = ("0", "0.0", "false", "no")


@dataclass
class LabelForm:
    """Whether rows have one label or a set of them, and the file that said so first.

    Attributes:
        multi_label: whether they have sets; none before the first row.
        source: the file of the first row.
    """

    multi_label: bool | None = None
    source: str = ""

    def check(self, where: Place, value: object, multi_label: bool) -> None:
        """Note the form of the first row, and refuse a row that has the other one."""
        if self.multi_label is None:
            self.multi_label, self.source = multi_label, where.origin.source
        if self.multi_label and value is None:
            raise DataError(
                f"{where}: the labels are missing ({value}); write an empty list where none applies"
            )
        if self.multi_label != multi_label:
            here, there = _FORMS[multi_label], _FORMS[self.multi_label]
            raise DataError(
                f"{where}: the label {shown(value)} is {here}, where {self.source} has {there}; "
                f"write the labels of all rows alike, or split strings with {SEPARATOR_OPTION}"
            )


_FORMS = {True: "a list of labels", False: "a single label"}


def labels_of(where: Place, column: str, separator: str | None) -> tuple[str, ...]:
    """The labels of a record: the members of a list, or the parts of a string."""
    value = value_of(where, column)
    n_ensemble: Sequence[object] = [value]
    if isinstance(value, list):
        n_ensemble = value
    elif isinstance(value, str) and separator:
        n_ensemble = [part for part in value.split(separator) if part.strip()]
    return tuple(dict.fromkeys(label_from(where, column, member) for member in n_ensemble))


def flagged(where: Place, columns: Sequence[str]) -> tuple[str, ...]:
    """The names of those ``columns`` that say yes."""
    return tuple(column for column in columns if _says_yes(where, column))


def _says_yes(where: Place, column: str) -> bool:
    value = value_of(where, column)
    word = str(value).strip().lower()
    if isinstance(value, str | int | float) and word in (*_YES, *_NO):
        return word in _YES
    raise DataError(
        f"{where}: the label column {shown(column)} holds {shown(value)}; "
        "it must say whether the label applies, by 1 or 0"
    )


def check_flags(path: Path, names: Sequence[str], flags: Sequence[str], text: str | None) -> None:
    """Check that the columns of ``--label-columns`` are there, and are labels and nothing else.

    Raises:
        DataError: one is missing, is the column of the texts, or there are fewer than two.
    """
    if len(set(flags)) < 2:
        raise DataError(
            f"{FLAGS_OPTION} {','.join(flags)} names fewer than two columns; name one a label, "
            f"with commas, or give a column of labels with {LABEL_OPTION}"
        )
    for flag in flags:
        if flag not in names:
            raise DataError(
                f"{path}: {FLAGS_OPTION} {shown(flag)} is no column; the columns are "
                f"{shown_names(names)}{did_you_mean(flag, names)}"
            )
        if flag == text:
            raise DataError(f"{path}: {shown(flag)} is the text column; name it once")


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SEVERAL = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class LabelSets:
    """What each of N texts is.

    Attributes:
        classes: the labels, sorted.
        indicators: (N, classes) one where a label applies.
    """

    classes: NDArray[Any]
    indicators: NDArray[np.float32]

    @property
    def sets(self) -> list[tuple[str, ...]]:
        """The labels of each text as strings, for a split."""
        names = [str(label) for label in self.classes]
        return [tuple(names[i] for i in np.flatnonzero(row)) for row in self.indicators]

    def among(self, classes: NDArray[Any], of: str = "dev") -> NDArray[np.float32]:
        """The indicators in the order of ``classes``; ``of`` says whose they are, for messages.

        Raises:
            DataError: a label is not one of them.
        """
        known = classes.tolist()
        found = np.zeros((len(self.indicators), len(known)), np.float32)
        for column, label in enumerate(self.classes.tolist()):
            if label in known:
                found[:, known.index(label)] = self.indicators[:, column]
            elif self.indicators[:, column].any():
                known_by = "y" if of == "dev" else "the training set"
                raise DataError(f"the {of} label {label!r} does not occur in {known_by}")
        return found


def checked_labels(y: Any, texts: Sequence[str]) -> NDArray[Any] | LabelSets:
    """``y`` as an array of labels, one a text, or as sets of them.

    Raises:
        DataError: there are more or fewer than texts, one is missing or cannot be saved.
    """
    is_array = isinstance(y, np.ndarray | np.generic | str) or is_frame(y)
    if not is_array and isinstance(y, Iterable) and getattr(y, "ndim", 1) == 1:
        y = values_of(y)
    if (sets := label_sets(y.tolist() if _holds_lists(y) else y)) is not None:
        if len(texts) != len(sets.sets):
            raise DataError(
                f"X has {len(texts)} texts and y {len(sets.sets)} sets of labels; give one each"
            )
        for label in filter(_cannot_be_saved, sets.classes.tolist()):
            raise DataError(f"the label {label!r} is not valid Unicode, so it cannot be saved")
        return sets
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise DataError(f"y must be one label a text; got an array of shape {labels.shape}")
    if len(texts) != len(labels):
        raise DataError(f"X has {len(texts)} texts and y {len(labels)} labels; give one each")
    # Of a missing label among strings numpy has made the string "nan": the values tell.
    for index, label in enumerate(labels.tolist() if is_array else y):
        if is_missing(label):
            raise DataError(
                f"label {index} is missing ({label!r}); give the text a label, or drop it"
            )
    for label in set(labels.tolist()):
        if not isinstance(label, str | int | float):
            raise DataError(f"the labels must be strings, numbers or booleans; got {label!r}")
        if _cannot_be_saved(label):
            raise DataError(f"the label {label!r} is not valid Unicode, so it cannot be saved")
    return labels


def _holds_lists(y: Any) -> bool:
    """Whether ``y`` is an array of objects, which may be lists of labels."""
    return isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == object


def _cannot_be_saved(label: object) -> bool:
    return isinstance(label, str) and _LONE_SURROGATE.search(label) is not None


def dev_targets(
    labels: NDArray[Any] | LabelSets, classes: NDArray[Any], multi_label: bool
) -> NDArray[Any]:
    """The targets of a dev set, in the form of the training set's."""
    if isinstance(labels, LabelSets) != multi_label:
        one, other = ("one label", "several") if multi_label else ("several labels", "one")
        raise DataError(f"the dev set has {one} a text, where y has {other}; give both alike")
    if isinstance(labels, LabelSets):
        return labels.among(classes)
    return _class_numbers(labels, classes)


def _class_numbers(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    numbers = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unknown = classes[numbers] != labels
    if unknown.any():
        raise DataError(f"the dev label {labels[unknown].tolist()[0]!r} does not occur in y")
    return numbers


def label_sets(y: Any) -> LabelSets | None:
    """``y`` as sets of labels, if that is what it is: none where it has one label a text.

    Raises:
        DataError: a matrix holds more than noughts and ones, or a list what is no label.
    """
    if getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:  # numpy's, pandas', or a sparse matrix
        matrix = _of_matrix(y.toarray() if hasattr(y, "toarray") else np.asarray(y))
        return (
            replace(matrix, classes=np.array(list(map(str, y.columns)))) if is_frame(y) else matrix
        )
    if not isinstance(y, list | tuple) or not any(isinstance(one, _SEVERAL) for one in y):
        return None
    for place, one in enumerate(y):
        if not isinstance(one, _SEVERAL):
            raise DataError(
                f"label {place} is {one!r:.60}, where others are lists; give every text a list of "
                "labels, empty where none applies"
            )
    return _of_lists([list(one) for one in y])


def _of_matrix(matrix: NDArray[Any]) -> LabelSets:
    if not np.isin(matrix, (0, 1)).all():
        odd = matrix[~np.isin(matrix, (0, 1))][0]
        raise DataError(
            f"y is a matrix, which must hold noughts and ones, a column a label; it holds {odd!r}"
        )
    return LabelSets(np.arange(matrix.shape[1]), matrix.astype(np.float32))


def _of_lists(sets: list[list[Any]]) -> LabelSets:
    if len({len(one) for one in sets}) == 1 and len(sets[0]) > 1 and _are_flags(sets):
        return _of_matrix(np.array(sets))
    for place, labels in enumerate(sets):
        for label in labels:
            if is_missing(label) or not isinstance(label, str | int | float | np.generic):
                raise DataError(
                    f"label {place} holds {label!r:.60}; "
                    "the labels must be strings, numbers or booleans"
                )
    distinct = {label for labels in sets for label in labels}
    if len({isinstance(label, str) for label in distinct}) > 1:
        raise DataError("some of the labels are strings and some are not; give all of one type")
    classes = np.array(sorted(distinct))
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    indicators = np.zeros((len(sets), len(classes)), np.float32)
    for row, labels in zip(indicators, sets, strict=True):
        row[[numbers[label] for label in labels]] = 1
    return LabelSets(classes, indicators)


def _are_flags(sets: list[list[Any]]) -> bool:
    """Whether lists of equal length are the rows of a matrix, as in ``[[0, 1], [1, 1]]``."""
    return all(type(flag) in (int, bool, float) and flag in (0, 1) for row in sets for flag in row)
