"""Which formats a table can have, and opening one by its suffix.

Lines of text (``dcnn.data.records``) and columns (``dcnn.data.arrow_files``) give the same rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from dcnn.data.arrow_files import ARROW, open_arrow
from dcnn.data.columns import Columns
from dcnn.data.messages import shown
from dcnn.data.records import JSON_LINES, PLAIN, SEPARATORS, Record, open_lines
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS, bare_suffix, check_readable

LINES = (*SEPARATORS, *JSON_LINES, PLAIN)


class Table(Protocol):
    """An open file; ``dcnn.data.records.LineTable`` describes the attributes."""

    @property
    def columns(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def hint(self) -> str: ...  # noqa: D102
    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def typed(self) -> bool: ...  # noqa: D102

    def sample(self) -> Sequence[Mapping[str, object]]:
        """The first rows, to guess the columns from."""
        ...

    def rows(self, columns: Columns) -> Iterator[Record]:
        """All the rows, with these columns at least."""
        ...


def is_table(path: Path) -> bool:
    """Whether the suffix is that of a format that can be read."""
    return path.suffix.lower() in ARROW or bare_suffix(path) in LINES


def open_table(path: Path, encoding: str, *, header: bool) -> AbstractContextManager[Table]:
    """Open a table; its suffix names its format.

    Args:
        path: the file.
        encoding: of its text; columns are always UTF-8.
        header: whether CSV and TSV start with the names of the columns, else they are numbered
            from "1".

    Raises:
        DataError: the file cannot be read, is empty, or is not what its suffix says.
    """
    check_readable(path)
    if not is_table(path):
        raise DataError(
            f"{path}: the suffix {shown(bare_suffix(path))} names no format that can be read; use "
            f"one of {' '.join(LINES)}, each alone or followed by one of {' '.join(COMPRESSIONS)}, "
            f"or one of {' '.join(ARROW)} alone"
        )
    if path.suffix.lower() in ARROW:
        return open_arrow(path)
    return open_lines(path, encoding, header=header)
