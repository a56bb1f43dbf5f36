"""Which columns of a table hold the text, the label and the weight.

A column that the user names must exist. One that the user does not name is guessed: from names
that such columns usually have, then by elimination, then by the length of the values. Every
guess is logged together with the option that overrides it.

Values and names of a user's file appear in messages quoted, escaped and never long (``shown``).
"""

import difflib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dcnn.errors import DataError

_LONGEST_VALUE = 60
_MOST_NAMES = 10
_COMPARED = 100  # characters; difflib's time grows with the square of the length


def shown(value: object) -> str:
    """The ``repr`` of a value, on one line and cut where it is long."""
    # A long string is cut before it is escaped: a message must not cost what the file costs.
    text = repr(value[:_LONGEST_VALUE] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]}...{text[-1]}"


def shown_names(names: Collection[str]) -> str:
    """The first ten of ``names``, quoted, and how many there are beyond them."""
    listed = ", ".join(shown(name) for name in islice(names, _MOST_NAMES))
    beyond = len(names) - _MOST_NAMES
    return f"{listed} and {beyond} more" if beyond > 0 else listed


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``"; did you mean 'label'?"`` when one of ``known`` is like ``name``, else nothing."""
    folded = {candidate[:_COMPARED].casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name[:_COMPARED].casefold(), folded, n=1, cutoff=0.7)
    return f"; did you mean {shown(folded[near[0]])}?" if near else ""


SAMPLED_ROWS = 100  # read to guess the columns

# In order of preference.
TEXT_NAMES = (
    *("text", "sentence", "tweet", "review", "question", "content", "comment", "message"),
    *("utterance", "query", "document", "body", "title"),
)
LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "type"),
    *("stars", "rating", "y"),
)

_log = logging.getLogger("dcnn")

Sample = Callable[[], Iterable[Mapping[str, object]]]


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; ``None`` is one that is not read."""

    text: str
    label: str | None = None
    weight: str | None = None
    indicators: tuple[str, ...] = ()  # one per label, in place of a column of labels

    @property
    def names(self) -> list[str]:
        """All of them."""
        single = (self.text, self.label, self.weight)
        return [name for name in (*single, *self.indicators) if name is not None]


def check_unique(where: object, names: Iterable[str]) -> None:
    """Check that no two columns have one name; ``where`` they are is for the message."""
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise DataError(
            f"{where}: more than one column is named {shown_names(twice)}; "
            "give every column a name of its own"
        )


def choose_columns(
    source: Path | str,
    names: Sequence[str],
    sample: Sample,
    text: str | None,
    label: str | None,
    weight: str | None = None,
    indicators: tuple[str, ...] = (),
    *,
    labels: bool,
    hint: str = "",
    options: tuple[str, str] = ("--text-column", "--label-column"),
) -> Columns:
    """Find columns among ``names``, of which nameless ones are empty strings.

    ``text``, ``label`` and ``weight`` are what the user names. A text column that is ``None`` is
    guessed, and so is that of the labels if these are read. ``sample`` gives the first rows, if the
    names do not settle the choice; ``hint`` is what a file with one column looks like instead.
    """
    label = label if labels else None
    existing = f"the columns are {shown_names(names)}"
    uses = [(options[0], text), ("--weight-column", weight), (options[1], label)]
    uses += [("--label-columns", name) for name in dict.fromkeys(indicators)]
    named: dict[str, str] = {}
    for option, name in uses:
        if name is None:
            continue
        if not name:
            raise DataError(f"{source}: {option} is empty; {existing}")
        if name not in names:
            near = hint or did_you_mean(name, [known for known in names if known])
            raise DataError(f"{source}: {option} {shown(name)} is no column; {existing}{near}")
        if name in named:
            raise DataError(
                f"{source}: {named[name]} and {option} both name {shown(name)}; "
                f"choose two columns; {existing}"
            )
        named[name] = option
    candidates = [name for name in names if name and name not in (weight, *indicators)]
    if not candidates:
        raise DataError(
            f"{source}: no column is left to read the text from; name one in the header"
        )
    if labels and len(candidates) == 1:
        raise DataError(
            f"{source} has just one column to read, {shown(candidates[0])}, "
            f"where a text and a label are needed{hint or '; add the missing column'}"
        )
    text, label = _guess(candidates, text, label, sample)
    guesses: dict[str, str] = {}
    for option, what, column in zip(options, ("text", "labels"), (text, label), strict=True):
        if what == "labels" and not labels:
            break
        if column is None:
            raise DataError(
                f"{source}: cannot guess which column holds the {what}; {existing}; "
                f"choose with {option}"
            )
        if column not in named:
            guesses[option] = f"{what} from {'' if guesses else 'column '}{shown(column)}"
    if guesses:
        found, remedy = " and ".join(guesses.values()), " and ".join(guesses)
        _log.info("%s: reading %s (guessed; choose with %s)", source, found, remedy)
    assert text is not None  # noqa: S101
    return Columns(text, label if labels else None, weight, indicators)


def _guess(
    candidates: list[str], text: str | None, label: str | None, sample: Sample
) -> tuple[str | None, str | None]:
    """Fill in the text and the label column where they are ``None`` and can be guessed."""
    if len(candidates) == 1:
        return candidates[0], None
    text = text or _first_known(TEXT_NAMES, candidates, taken=label)
    label = label or _first_known(LABEL_NAMES, candidates, taken=text)
    if len(candidates) == 2:
        first, second = candidates
        if text is None and label is None:
            rows = list(sample())

            def characters(name: str) -> int:
                return sum(len(value) for row in rows if isinstance(value := row.get(name), str))

            text = max(candidates, key=characters)
        text = text or (second if label == first else first)
        label = label or (second if text == first else first)
    return text, label


def _first_known(known: Sequence[str], candidates: Sequence[str], taken: str | None) -> str | None:
    folded = {name.casefold(): name for name in reversed(candidates) if name != taken}
    return next((folded[name] for name in known if name in folded), None)
