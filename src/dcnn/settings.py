"""Between plain values (TOML, JSON, ``--set``) and frozen dataclasses, with errors people can use.

Knows nothing of any particular setting: the fields and type hints of the dataclass are the schema.
"""

import difflib
import json
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar, cast

from dcnn.errors import ConfigError

Section = TypeVar("Section")

_LIMIT = 2**31  # beyond any sensible setting, and within what every library takes

_WANTED: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


def from_plain(section: type[Section], values: Mapping[str, Any], where: str) -> Section:
    """Build ``section`` from names and values; ``where`` says in an error where they come from.

    Raises:
        ConfigError: a name is unknown, a value has the wrong type, or the section refuses it.
    """
    check_names(where, values, [item.name for item in fields(cast("Any", section))])
    hints = typing.get_type_hints(section)
    checked: dict[str, Any] = {
        name: _checked(where, name, hints[name], value) for name, value in values.items()
    }
    try:
        return section(**checked)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def to_plain(section: object) -> dict[str, Any]:
    """A dataclass as JSON-ready values: tuples become lists."""
    return cast("dict[str, Any]", json.loads(json.dumps(asdict(cast("Any", section)))))


def check_names(where: str, values: Mapping[str, Any], known: list[str]) -> None:
    """Refuse names that are not ``known``, with the nearest one as a hint."""
    for name in values:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise ConfigError(f"{where}: unknown setting '{name}'; {hint}")


def parse_setting(setting: str) -> tuple[str, str, object]:
    """Split ``section.key=value``; the value is written as in TOML, or is a bare word."""
    path, equals, text = setting.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and key):
        raise ConfigError(
            f"--set {setting!r} must look like section.key=value, for instance training.epochs=5"
        )
    try:
        return section, key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return section, key, text.strip()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {path}=...: the value cannot be read ({error})") from None


def _short(value: object) -> str:
    """``value`` for a message; a number of 400 digits is not worth reading."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of many digits"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _checked(where: str, name: str, hint: Any, value: Any) -> object:
    """Return ``value`` as the type that ``hint`` asks for, or say what was expected."""
    match typing.get_origin(hint):
        case None:
            if hint is float and type(value) is int and abs(value) < _LIMIT:
                return float(value)
            fits, wanted = type(value) is hint, _WANTED[hint]
            if fits and hint in (int, float) and not abs(value) < _LIMIT:
                fits, wanted = False, f"a finite number below {_LIMIT}"
        case typing.Literal:
            options = typing.get_args(hint)
            fits, wanted = value in options, f"one of {', '.join(options)}"
        case _:  # tuple[item, ...]
            item = typing.get_args(hint)[0]
            if isinstance(value, list | tuple):
                return tuple(_checked(where, f"{name}[{i}]", item, v) for i, v in enumerate(value))
            fits, wanted = False, "a list such as [7, 5]"
    if not fits:
        raise ConfigError(f"{where}: {name}={_short(value)} must be {wanted}")
    return cast("object", value)
