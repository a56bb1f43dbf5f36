"""The labelled texts of ``dcnn train``, ``tune`` and ``compare``: read and checked the same way."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dcnn.data.columns import shown_names
from dcnn.data.readers import (
    LabelledTexts,
    TableOptions,
    check_form,
    check_known_labels,
    check_training_labels,
    read_labelled,
)
from dcnn.errors import DataError

_log = logging.getLogger("dcnn")


def read_examples(
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: TableOptions,
    *,
    multi_label: bool = False,
) -> tuple[LabelledTexts, LabelledTexts | None, LabelledTexts | None]:
    """Training, dev and test examples, all checked before any training starts.

    ``multi_label`` allows several labels a row.
    """
    train = read_labelled(data, columns)
    if train.multi_label and not multi_label:
        raise DataError(
            f"{train.source} has several labels a row, which only `dcnn train` and `dcnn evaluate` "
            "take; give a column with one label a row"
        )
    check_training_labels(train, splits=dev is None)
    unweighted = replace(columns, weight_column=None)
    others = [None if path is None else read_labelled(path, unweighted) for path in (dev, test)]
    known = set(learned_labels(train, columns))
    _warn_of_noughts(train, columns)
    for examples in filter(None, others):
        check_form(examples, multi_label=train.multi_label, of=train.source)
        check_known_labels(examples, known)
    return train, others[0], others[1]


def learned_labels(train: LabelledTexts, columns: TableOptions) -> list[str]:
    """The labels of a model: those that occur, and every column that the user named as a label.

    A column of noughts alone stays, as a matrix of scikit-learn's keeps its columns: what asks the
    model finds the labels that were named, and a test file may have them.
    """
    occurring = {label for labels in train.each for label in labels}
    return sorted_labels([*occurring, *columns.label_columns])


def _warn_of_noughts(train: LabelledTexts, columns: TableOptions) -> None:
    occurring = {label for labels in train.each for label in labels}
    empty = [column for column in columns.label_columns if column not in occurring]
    if empty:
        _log.warning(
            "%s: no row has a 1 in %s of --label-columns; the model keeps such a label, but learns "
            "to give it to no text; check the data, or leave it out",
            train.source,
            shown_names(empty),
        )


def sorted_labels(labels: Sequence[str]) -> list[str]:
    """Distinct labels: by value if all are whole numbers, else by alphabet."""
    distinct = set(labels)
    if all(label.removeprefix("-").isdecimal() and len(label) < 20 for label in distinct):
        return sorted(distinct, key=lambda label: (int(label), label))
    return sorted(distinct)
