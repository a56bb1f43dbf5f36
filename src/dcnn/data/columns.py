"""How values and names of a user's file appear in messages: quoted, escaped and never long.

Which columns of a table hold the text, the label and the weight.

A column that the user names must exist. One that the user does not name is guessed: from names
that such columns usually have, then by elimination, then by the length of the values. Every
guess is logged together with the option that overrides it.

"""

import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dcnn.errors import DataError

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


TEXT_OPTION = "--text-column"
LABEL_OPTION = "--label-column"
WEIGHT_OPTION = "--weight-column"

# In order of preference.
TEXT_NAMES = (
    "text",
    "sentence",
    "tweet",
    "review",
    "question",
    "content",
    "comment",
    "message",
    "utterance",
    "query",
    "document",
    "body",
    "title",
)
LABEL_NAMES = (
    "label",
    "labels",
    "class",
    "category",
    "target",
    "sentiment",
    "intent",
    "topic",
    "type",
    "stars",
    "rating",
    "y",
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
        flags: one a label, which say whether it applies; there is then no column of labels.
    """

    text: str
    label: str | None = None
    weight: str | None = None
    flags: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All of them."""
        single = (self.text, self.label, self.weight)
        return [name for name in (*single, *self.flags) if name is not None]


# How an option is called on the command line.
_COMMAND_LINE = {option: option for option in (TEXT_OPTION, LABEL_OPTION, WEIGHT_OPTION)}


def choose_columns(
    path: Path | str,
    names: Sequence[str],
    wanted: Mapping[str, str | None],
    sample: Sample,
    hint: str,
    called: Mapping[str, str] = _COMMAND_LINE,
) -> Columns:
    """Find the columns that ``wanted`` asks for among ``names``.

    Args:
        path: the file, or what else has columns, for messages.
        names: the columns of the file; nameless ones are empty strings.
        wanted: the column named by the user, or ``None``, under each option that is to be served;
            without ``LABEL_OPTION`` no label is looked for.
        sample: gives the first rows, read only if the names do not settle the choice.
        hint: what a file with a single column looks like instead; empty if like nothing else.
        called: what the user calls each option.

    Raises:
        DataError: a named column does not exist, or one cannot be guessed.
    """
    labels = LABEL_OPTION in wanted
    text, label, weight = (
        wanted.get(option) for option in (TEXT_OPTION, LABEL_OPTION, WEIGHT_OPTION)
    )
    _check_named(path, names, {called[option]: name for option, name in wanted.items()}, hint)
    candidates = [name for name in names if name and name != weight]
    if not candidates:
        raise DataError(f"{path}: no column is left to read the text from; name one in the header")
    if labels and len(candidates) == 1:
        raise DataError(
            f"{path} has just one column to read, {shown(candidates[0])}, "
            f"where a text and a label are needed{hint or '; add the missing column'}"
        )
    guessed_text, guessed_label = _guess(candidates, text, label, sample)
    if guessed_text is None:
        raise _cannot_guess(path, "text", names, called[TEXT_OPTION])
    if labels and guessed_label is None:
        raise _cannot_guess(path, "labels", names, called[LABEL_OPTION])
    guesses = {}
    if text is None:
        guesses[called[TEXT_OPTION]] = f"text from {shown(guessed_text)}"
    if labels and label is None:
        guesses[called[LABEL_OPTION]] = f"labels from {shown(guessed_label)}"
    if guesses:
        reading = " and ".join(guesses.values()).replace("from", "from column", 1)
        options = " and ".join(guesses)
        _log.info("%s: reading %s (guessed; choose with %s)", path, reading, options)
    return Columns(guessed_text, guessed_label if labels else None, weight)


def _guess(
    candidates: list[str], text: str | None, label: str | None, sample: Sample
) -> tuple[str | None, str | None]:
    """Fill in the text and the label column where they are ``None`` and can be told."""
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
    """The column with more characters in ``rows``; what is not a string counts for none."""
    lead = 0
    for row in rows:
        for name, sign in ((first, 1), (second, -1)):
            value = row.get(name)
            lead += sign * len(value) if isinstance(value, str) else 0
    return first if lead >= 0 else second


def _check_named(
    path: Path | str, names: Sequence[str], wanted: Mapping[str, str | None], hint: str
) -> None:
    """Every column that the user names exists and has one use."""
    options: dict[str, str] = {}
    for option, name in wanted.items():
        if name is None:
            continue
        if not name:
            raise DataError(f"{path}: {option} is empty; {_existing(names)}")
        if name not in names:
            near = hint or did_you_mean(name, [known for known in names if known])
            raise DataError(
                f"{path}: {option} {shown(name)} is no column; {_existing(names)}{near}"
            )
        if name in options:
            raise DataError(
                f"{path}: {options[name]} and {option} both name {shown(name)}; "
                f"choose two columns; {_existing(names)}"
            )
        options[name] = option


def _cannot_guess(path: Path | str, what: str, names: Sequence[str], option: str) -> DataError:
    return DataError(
        f"{path}: cannot guess which column holds the {what}; {_existing(names)}; "
        f"choose with {option}"
    )


def _existing(names: Sequence[str]) -> str:
    return f"the columns are {shown_names(names)}"
