"""Which columns of a file or a frame hold the text, the label and the weight.

A column that the user names must exist. One that the user does not name is guessed: from names
that such columns usually have, then by elimination, then by the length of the values. Every
guess is logged together with the option that overrides it.

A frame is one of pandas, polars, pyarrow or Hugging Face; none of these is imported. It is
recognized by its named columns, a column by a method that gives its values as a list; pyarrow reads
whatever else exports Arrow. Values in messages are quoted, escaped and never long (``shown``).
"""

import difflib
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.errors import DataError, needs_extra

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

# In order of preference; case does not matter, and a space or hyphen is an underscore.
TEXT_NAMES = (
    *("text", "texts", "sentence", "sentences", "tweet", "review", "question", "content"),
    *("comment", "message", "utterance", "query", "document", "body", "title"),
    *("tweet_text", "review_text", "comment_text", "message_text", "full_text", "cleaned_text"),
    *("reviews", "tweets", "comments", "messages", "post", "feedback", "description", "headline"),
    *("phrase", "passage", "article", "abstract", "summary", "transcript", "sms", "email"),
    *("input", "input_text", "prompt", "x"),
)
LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "type"),
    *(
        "stars",
        "rating",
        "y",
        "label_name",
        "label_text",
        "class_name",
        "class_label",
        "categories",
    ),
    *("classes", "targets", "topics", "intents", "polarity", "emotion", "emotions", "tag", "tags"),
    *("genre", "score", "annotation", "gold", "gold_label", "output", "outcome", "is_spam", "spam"),
    *("airline_sentiment", "coarse_label"),
)

_AS_LIST = ("to_pylist", "to_list", "tolist")  # of pyarrow, of pandas and polars, of arrays
_MISSING = ("NAType", "NaTType")  # of pandas, whose comparison with anything is missing too

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
        return list(filter(None, (self.text, self.label, self.weight, *self.indicators)))


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
    """Choose columns among ``names``, where a column without a name is an empty string.

    ``text``, ``label`` and ``weight`` are the columns that the user named. ``text`` is guessed if
    it is ``None``, and so is ``label`` if ``labels`` are read. ``sample`` returns the first rows,
    for when the names do not decide. ``hint`` ends some messages: what a file with one column looks
    like instead.
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
    folded = {_folded(name): name for name in reversed(candidates) if name != taken}
    return next((folded[name] for name in known if name in folded), None)


def _folded(name: str) -> str:
    return name.casefold().strip().replace(" ", "_").replace("-", "_")


def is_frame(value: object) -> bool:
    """Whether ``value`` has columns with names, and is not a column itself."""
    # By its type: a lazy frame would have to plan its query to list its columns.
    kind = type(value)
    is_column = any(hasattr(kind, name) for name in _AS_LIST)
    has_names = hasattr(kind, "column_names") or hasattr(kind, "columns")
    return has_names or (hasattr(kind, "__arrow_c_stream__") and not is_column)


def values_of(column: Any) -> list[Any]:
    """The values of a column, or of any iterable, as Python objects."""
    for name in _AS_LIST:
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def is_missing(value: object) -> bool:
    """Whether ``value`` is a missing value: None, NaN, or NA of pandas."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in _MISSING


class Frame:
    """A frame of any library; ``name`` is the argument that it was passed as, for messages."""

    def __init__(self, frame: Any, name: str) -> None:
        self._frame, self._name = _in_memory(frame, name), name
        names = getattr(self._frame, "column_names", None)
        names = list(self._frame.columns if names is None else names)
        check_unique(name, map(str, names))
        self._names = {str(column): column for column in names}  # pandas has numbers as names too

    def choose(self, text: str | None, label: str | None, *, labels: bool) -> Columns:
        """The columns to read; see ``choose_columns``."""
        text, label = (None if name is None else str(name) for name in (text, label))
        names, options = list(self._names), ("text_column", "label_column")
        return choose_columns(
            self._name, names, self._sample, text, label, labels=labels, options=options
        )

    def column(self, name: str) -> list[Any]:
        """The values of a column."""
        return values_of(self._frame[self._names[name]])

    def _sample(self) -> list[Mapping[str, object]]:
        values = [islice(self.column(name), SAMPLED_ROWS) for name in self._names]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*values, strict=True)]


def _in_memory(frame: Any, name: str) -> Any:
    """``frame``, if its columns can be indexed, or the table that pyarrow reads from it."""
    kind = type(frame)
    if isinstance(frame, Mapping):
        raise DataError(
            f"{name} is a {kind.__name__} of {shown_names(list(map(str, frame)))}; "
            f"give one of them, for instance {name}[{next(iter(frame), 'train')!r}]"
        )
    if hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and not hasattr(kind, "collect"):
        return frame
    if not hasattr(kind, "__arrow_c_stream__"):
        remedy = f"give {name}.collect()" if hasattr(kind, "collect") else "give it as a frame"
        raise DataError(f"{name} is a {kind.__name__}, which is not in memory; {remedy}")
    with needs_extra(f"Reading a {kind.__name__}", "data"):
        import pyarrow
    try:
        return pyarrow.table(frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name} is a {kind.__name__} that has no columns ({error})") from error
