"""Reading small files as a test needs it: what comes out, or the error that is raised."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dcnn.data.readers import TableOptions, read_labelled, read_rows
from dcnn.errors import DataError

Write = Callable[[str, str | bytes], Path]


def texts(path: Path, **options: Any) -> list[str]:
    return [row.text for row in read_rows(path, TableOptions(**options), labels=False)]


def pairs(path: Path, **options: Any) -> list[tuple[str, str]]:
    examples = read_labelled(path, TableOptions(**options))
    return list(zip(examples.texts, examples.labels, strict=True))


def message(path: Path, *, labels: bool = True, **options: Any) -> str:
    """The error that reading raises; it names the file and fits on one line of moderate length."""
    with pytest.raises(DataError, match=re.escape(path.name)) as caught:
        list(read_rows(path, TableOptions(**options), labels=labels))
    found = str(caught.value)
    assert "\n" not in found
    assert len(found) - len(str(path)) < 400
    return found
