"""The labelled texts of ``dcnn train``, ``tune`` and ``compare``: read and checked the same way."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from dcnn.data.columns import shown_names
from dcnn.data.labels import LabelledTexts, check_form, check_training_labels
from dcnn.data.readers import TableOptions, read_labelled
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

    ``multi_label`` allows several labels per row.
    """
    train = read_labelled(data, columns)
    if train.multi_label and not multi_label:
        raise DataError(
            f"{train.source} has several labels per row, which only `dcnn train` and "
            "`dcnn evaluate` take; give a column with one label per row"
        )
    check_training_labels(train, splits=dev is None)
    unweighted = replace(columns, weight_column=None)
    others = [None if path is None else read_labelled(path, unweighted) for path in (dev, test)]
    _warn_of_empty_columns(train)
    for examples in filter(None, others):
        check_form(examples, multi_label=train.multi_label, of=train.source)
    dev_set, test_set = (part and part.with_classes(train.classes) for part in others)
    return train, dev_set, test_set


def _warn_of_empty_columns(train: LabelledTexts) -> None:
    """A column of --label-columns without a 1 stays a label, as scikit-learn keeps its columns."""
    occurs = train.targets.any(axis=0) if train.multi_label else np.ones(len(train.classes))
    empty = [str(train.classes[number]) for number in np.flatnonzero(occurs == 0).tolist()]
    if empty:
        _log.warning(
            "%s: no row has a 1 in %s of --label-columns; the model keeps such a label, but learns "
            "to give it to no text; check the data, or leave it out",
            train.source,
            shown_names(empty),
        )
