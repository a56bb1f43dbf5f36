"""Frames and columns in memory: of pandas, polars, pyarrow and Hugging Face.

None of these packages is imported. A frame is recognized by its named columns, a column by a method
that gives its values as a list; pyarrow reads whatever else exports Arrow
(``__arrow_c_stream__``). Rows count from 0.
"""

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from dcnn.data.columns import SAMPLED_ROWS, Columns, check_unique, choose_columns, shown_names
from dcnn.errors import DataError, needs_extra

_AS_LIST = ("to_pylist", "to_list", "tolist")  # of pyarrow, of pandas and polars, of arrays
_MISSING = ("NAType", "NaTType")  # of pandas, whose comparison with anything is missing too


def is_frame(value: object) -> bool:
    """Whether ``value`` has columns with names, and is not a column itself."""
    # By its type: a lazy frame would have to plan its query to list its columns.
    kind = type(value)
    if hasattr(kind, "column_names") or hasattr(kind, "columns"):
        return True
    is_column = any(hasattr(kind, name) for name in _AS_LIST)
    return hasattr(kind, "__arrow_c_stream__") and not is_column


def values_of(column: Any) -> list[Any]:
    """The values of a column, or of any iterable, as Python objects."""
    for name in _AS_LIST:
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def is_missing(value: object) -> bool:
    """Whether ``value`` is a missing value: None, NaN, or NA of pandas."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in _MISSING


class Frame:
    """A frame of any library; ``name`` is the argument that it was passed as, for messages."""

    def __init__(self, frame: Any, name: str) -> None:
        self._frame, self._name = _in_memory(frame, name), name
        names = getattr(self._frame, "column_names", None)
        names = list(self._frame.columns if names is None else names)
        check_unique(name, map(str, names))
        self._names = {str(column): column for column in names}  # pandas has numbers as names too

    def choose(self, text: str | None, label: str | None, *, labels: bool) -> Columns:
        """The columns to read; see ``choose_columns``."""
        text, label = (None if name is None else str(name) for name in (text, label))
        names, options = list(self._names), ("text_column", "label_column")
        return choose_columns(
            self._name, names, self._sample, text, label, labels=labels, options=options
        )

    def column(self, name: str) -> list[Any]:
        """The values of a column."""
        return values_of(self._frame[self._names[name]])

    def _sample(self) -> list[Mapping[str, object]]:
        values = [islice(self.column(name), SAMPLED_ROWS) for name in self._names]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*values, strict=True)]


def _in_memory(frame: Any, name: str) -> Any:
    """``frame``, if its columns can be indexed, or the table that pyarrow reads from it."""
    kind = type(frame)
    if isinstance(frame, Mapping):
        raise DataError(
            f"{name} is a {kind.__name__} of {shown_names(list(map(str, frame)))}; "
            f"give one of them, for instance {name}[{next(iter(frame), 'train')!r}]"
        )
    if hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and not hasattr(kind, "collect"):
        return frame
    if not hasattr(kind, "__arrow_c_stream__"):
        remedy = f"give {name}.collect()" if hasattr(kind, "collect") else "give it as a frame"
        raise DataError(f"{name} is a {kind.__name__}, which is not in memory; {remedy}")
    with needs_extra(f"Reading a {kind.__name__}", "data"):
        import pyarrow
    try:
        return pyarrow.table(frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name} is a {kind.__name__} that has no columns ({error})") from error
