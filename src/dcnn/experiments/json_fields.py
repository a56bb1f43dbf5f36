"""How the fields of a result are written in JSON, by their type.

Class numbers and right-or-wrong marks are strings of digits: one short line for a whole test set
where a list would be thousands of lines.
"""

import re
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dcnn.errors import DataError


class _Form(NamedTuple):
    """How a type is written: in words, as a test, and how it is read."""

    wanted: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return type(value) is int  # to isinstance, true is a number too


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_object_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


_FORMS: dict[Any, _Form] = {
    str: _Form("a string", _is_text),
    int: _Form("a whole number", _is_whole),
    int | None: _Form("a whole number or null", lambda v: v is None or _is_whole(v)),
    float: _Form("a number", _is_number),
    float | None: _Form("a number or null", lambda v: v is None or _is_number(v)),
    tuple[int, ...]: _Form(
        "a string of digits",
        lambda v: _is_text(v) and re.fullmatch("[0-9]*", v) is not None,
        lambda v: tuple(int(digit) for digit in v),
    ),
    tuple[bool, ...]: _Form(
        "a string of 0 and 1",
        lambda v: _is_text(v) and set(v) <= {"0", "1"},
        lambda v: tuple(digit == "1" for digit in v),
    ),
    tuple[str, ...]: _Form(
        "a list of strings", lambda v: isinstance(v, list) and all(map(_is_text, v)), tuple
    ),
    tuple[float, ...]: _Form(
        "a list of numbers", lambda v: isinstance(v, list) and all(map(_is_number, v)), tuple
    ),
    dict[str, int]: _Form("an object of whole numbers", _is_object_of(_is_whole)),
    dict[str, str]: _Form("an object of strings", _is_object_of(_is_text)),
    dict[str, Any]: _Form("an object", lambda v: isinstance(v, dict)),
}


def read_field(name: str, hint: Any, value: object) -> object:
    """Return a value from JSON as the type that ``hint`` asks for.

    Raises:
        DataError: the value has another form.
    """
    form = _FORMS[hint]
    if not form.fits(value):
        raise DataError(f"{name}={reprlib.repr(value)} must be {form.wanted}")
    return form.read(value)


def as_digits(numbers: Iterable[int]) -> str:
    """Numbers below ten as a string, a digit each; right and wrong are 1 and 0."""
    return "".join(str(int(number)) for number in numbers)
