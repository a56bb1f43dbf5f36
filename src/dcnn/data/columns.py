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
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[: _LONGEST_VALUE - 4]}...{text[-1]}"


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


TEXT_OPTION = "--text-column"
LABEL_OPTION = "--label-column"
WEIGHT_OPTION = "--weight-column"
SEPARATOR_OPTION = "--labels-separator"
INDICATORS_OPTION = "--label-columns"

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
    """The names of the columns to read; ``None`` is one that is not read.

    Attributes:
        text: of the texts.
        label: of the labels.
        weight: of the weights.
        indicators: one per label, 1 where it applies; there is then no column of labels.
    """

    text: str
    label: str | None = None
    weight: str | None = None
    indicators: tuple[str, ...] = ()

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
    wanted: Mapping[str, str | None],
    sample: Sample,
    hint: str = "",
    called: Mapping[str, str] | None = None,
    indicators: tuple[str, ...] = (),
) -> Columns:
    """Find the columns that ``wanted`` asks for among ``names``.

    Args:
        source: the file or argument that has the columns, for messages.
        names: its columns; nameless ones are empty strings.
        wanted: the column named by the user, or ``None`` to guess it, by option; a label is guessed
            only if ``LABEL_OPTION`` is among them.
        sample: gives the first rows, read only if the names do not settle the choice.
        hint: what a file with a single column looks like instead, or nothing.
        called: what the user calls each option; by default as on the command line.
        indicators: the columns of ``--label-columns``.

    Raises:
        DataError: a named column does not exist, or one cannot be guessed.
    """
    called = {option: option for option in wanted} if called is None else called
    labels = LABEL_OPTION in wanted
    named_text, named_label, weight = (
        wanted.get(option) for option in (TEXT_OPTION, LABEL_OPTION, WEIGHT_OPTION)
    )
    existing = f"the columns are {shown_names(names)}"
    named = [(called[option], name) for option, name in wanted.items() if name is not None]
    named += [(INDICATORS_OPTION, name) for name in dict.fromkeys(indicators)]
    _check_named(source, names, named, hint, existing)
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
    text, label = _guess(candidates, named_text, named_label, sample)
    guesses: dict[str, str] = {}
    for option, what, name, column in (
        (TEXT_OPTION, "text", named_text, text),
        (LABEL_OPTION, "labels", named_label, label),
    ):
        if option not in wanted:
            continue
        if column is None:
            raise DataError(
                f"{source}: cannot guess which column holds the {what}; {existing}; "
                f"choose with {called[option]}"
            )
        if name is None:
            guesses[called[option]] = f"{what} from {'' if guesses else 'column '}{shown(column)}"
    if guesses:
        found, options = " and ".join(guesses.values()), " and ".join(guesses)
        _log.info("%s: reading %s (guessed; choose with %s)", source, found, options)
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
            text = _longer(first, second, sample())
        text = text or (second if label == first else first)
        label = label or (second if text == first else first)
    return text, label


def _first_known(known: Sequence[str], candidates: Sequence[str], taken: str | None) -> str | None:
    for name in known:
        for candidate in candidates:
            if candidate.casefold() == name and candidate != taken:
                return candidate
    return None


def _longer(first: str, second: str, rows: Iterable[Mapping[str, object]]) -> str:
    """The column with more characters in ``rows``; only strings count."""
    lead = 0
    for row in rows:
        for name, sign in ((first, 1), (second, -1)):
            value = row.get(name)
            lead += sign * len(value) if isinstance(value, str) else 0
    return first if lead >= 0 else second


def _check_named(
    source: Path | str,
    names: Sequence[str],
    named: Iterable[tuple[str, str]],
    hint: str,
    existing: str,
) -> None:
    """Every column that the user names exists and has one use."""
    options: dict[str, str] = {}
    for option, name in named:
        if not name:
            raise DataError(f"{source}: {option} is empty; {existing}")
        if name not in names:
            near = hint or did_you_mean(name, [known for known in names if known])
            raise DataError(f"{source}: {option} {shown(name)} is no column; {existing}{near}")
        if name in options:
            raise DataError(
                f"{source}: {options[name]} and {option} both name {shown(name)}; "
                f"choose two columns; {existing}"
            )
        options[name] = option
