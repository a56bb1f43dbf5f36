"""Several labels a row: in a list, in a cell with a separator, or in columns of noughts and ones.

A row may have no label at all: an empty list, an empty cell, or noughts alone. A label that is
given twice counts once. All rows of a corpus have one label each, or all have such sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dcnn.data.columns import LABEL_OPTION
from dcnn.data.fields import Place, label_from, value_of
from dcnn.data.messages import did_you_mean, shown, shown_names
from dcnn.errors import DataError

SEPARATOR_OPTION = "--labels-separator"
FLAGS_OPTION = "--label-columns"

_YES = ("1", "1.0", "true", "yes")
_NO = ("0", "0.0", "false", "no")


@dataclass
class LabelForm:
    """Whether rows have one label or a set of them, and the file that said so first.

    Attributes:
        many: whether they have sets; none before the first row.
        source: the file of the first row.
    """

    many: bool | None = None
    source: str = ""

    def check(self, where: Place, value: object, many: bool) -> None:
        """Note the form of the first row, and refuse a row that has the other one."""
        if self.many is None:
            self.many, self.source = many, where.origin.source
        if self.many and value is None:
            raise DataError(
                f"{where}: the labels are missing ({value}); write an empty list where none applies"
            )
        if self.many != many:
            here, there = _FORMS[many], _FORMS[self.many]
            raise DataError(
                f"{where}: the label {shown(value)} is {here}, where {self.source} has {there}; "
                f"write the labels of all rows alike, or split strings with {SEPARATOR_OPTION}"
            )


_FORMS = {True: "a list of labels", False: "a single label"}


def labels_of(where: Place, column: str, separator: str | None) -> tuple[str, ...]:
    """The labels of a record: the members of a list, or the parts of a string."""
    value = value_of(where, column)
    members: Sequence[object] = [value]
    if isinstance(value, list):
        members = value
    elif isinstance(value, str) and separator:
        members = [part for part in value.split(separator) if part.strip()]
    return tuple(dict.fromkeys(label_from(where, column, member) for member in members))


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
