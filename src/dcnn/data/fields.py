"""From the values of a record to its text, its label and its weight, each checked.

Labels lose the white space around them and are brought to Unicode normal form C, so that two that
look alike are one; texts stay as they are, and may be empty.
"""

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dcnn.data.messages import did_you_mean, shown, shown_names
from dcnn.data.records import Record
from dcnn.errors import DataError

_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = {str: "a string", bool: "a boolean", int: "an integer", float: "a number with a fraction"}


@dataclass(frozen=True)
class Origin:
    """The file of some rows, and what is counted in it."""

    source: str
    unit: str = "line"

    def at(self, number: int) -> str:
        """Where a row is, for messages."""
        return f"{self.source}, {self.unit} {number}"


class Place(NamedTuple):
    """A record and its file; as a string, where it is."""

    origin: Origin
    record: Record

    def __str__(self) -> str:
        return self.origin.at(self.record.line)


def check_kind(where: Place, label: object, kinds: dict[type, str]) -> None:
    """Check that the label has a type of the labels of other files, and note it in ``kinds``.

    A single file may mix types, as it always could; ``kinds`` holds the first file of each.
    """
    kind = type(label)
    if kind in kinds:
        return
    for other, source in kinds.items():
        if source != where.origin.source:
            raise DataError(
                f"{where}: the label {shown(label)} is {_KINDS[kind]}, where {source} has "
                f"{_KINDS[other]}; write the labels of all files alike"
            )
    kinds[kind] = where.origin.source


def value_of(where: Place, column: str) -> object:
    """What a record has in a column."""
    try:
        return where.record.values[column]
    except KeyError:
        keys = shown_names(where.record.values) if where.record.values else "none at all"
        raise DataError(
            f"{where}: the key {shown(column)} is missing; the keys here are "
            f"{keys}{did_you_mean(column, where.record.values)}"
        ) from None


def text_of(where: Place, column: str) -> str:
    """The text of a record."""
    value = value_of(where, column)
    if not isinstance(value, str):
        raise DataError(
            f"{where}: the text in {shown(column)} is {shown(value)}; it must be a string"
        )
    return _whole(where, value)


def label_of(where: Place, column: str) -> str:
    """The label of a record as a string, never empty."""
    return label_from(where, column, value_of(where, column))


def label_from(where: Place, column: str, value: object) -> str:
    """A value of a column, or a member of it, as a label."""
    match value:
        case str():
            label = unicodedata.normalize("NFC", _whole(where, value).strip())
        case bool():
            label = "true" if value else "false"
        case int():
            label = str(value)
        case float() if math.isfinite(value):
            label = repr(value)
        case _:
            raise DataError(
                f"{where}: the label in {shown(column)} is {shown(value)}; "
                "it must be a string, a number, true or false"
            )
    if not label:
        raise DataError(
            f"{where}: the label in {shown(column)} is empty; give the row a label or drop it, or "
            "pass --labels-separator where rows may have several or none"
        )
    return label


def _whole(where: Place, value: str) -> str:
    r"""``value`` itself, if it has no half of a pair such as JSON's ``\ud83d\ude00``."""
    if not value.isascii() and (half := _LONE_SURROGATE.search(value)):
        raise DataError(
            f"{where}: {half[0]!r} is half of a surrogate pair and no "
            "character; write the whole pair or leave it out"
        )
    return value


def weight_of(where: Place, column: str) -> float:
    """The weight of a record, finite and not negative."""
    value = value_of(where, column)
    weight = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            weight = float(value)
        except (ValueError, OverflowError):
            weight = math.nan
    if not 0 <= weight <= _LARGEST_WEIGHT:
        raise DataError(
            f"{where}: the weight in {shown(column)} is {shown(value)}; "
            "it must be a finite number of 0 or more"
        )
    return weight
