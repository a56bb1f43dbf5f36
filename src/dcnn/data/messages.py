"""How values and names of a user's file appear in messages: quoted, escaped and never long."""

import difflib
from collections.abc import Collection
from itertools import islice

_LONGEST_VALUE = 60
_MOST_NAMES = 10
_COMPARED = 100  # characters; difflib's time grows with the square of the length


def shown(value: object) -> str:
    """``value`` as Python writes it, on one line and cut where it is long."""
    # A long string is cut before it is escaped: a message must not cost what the file costs.
    text = repr(value[:_LONGEST_VALUE] if isinstance(value, str) else value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[: _LONGEST_VALUE - 4]}...{text[-1]}"


def shown_names(names: Collection[str]) -> str:
    """The first ten of ``names``, quoted, and how many there are beyond them."""
    listed = ", ".join(shown(name) for name in islice(names, _MOST_NAMES))
    beyond = len(names) - _MOST_NAMES
    return f"{listed} and {beyond} more" if beyond > 0 else listed


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``"; did you mean 'label'?"`` when one of ``known`` is near to ``name``, else nothing."""
    folded = {candidate[:_COMPARED].casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name[:_COMPARED].casefold(), folded, n=1, cutoff=0.7)
    return f"; did you mean {shown(folded[near[0]])}?" if near else ""
