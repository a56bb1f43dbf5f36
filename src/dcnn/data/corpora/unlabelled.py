"""Text that nobody labelled, for teachers to label: film reviews (Maas et al. 2011), questions.

The reviews are read from their archive, sentence by sentence, or from a file with a sentence per
line. ``treebank_tokens`` splits English text as the Penn Treebank does, so that sentences from
elsewhere have the words of the Stanford Sentiment Treebank and of the TREC questions.
"""

import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dcnn.errors import DataError
from dcnn.files import open_bytes

SHORTEST, LONGEST = 4, 40  # words of a sentence that is kept
_REVIEW = re.compile(r"aclImdb/(train|test)/(pos|neg|unsup)/\d+_\d+\.txt")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
# After the mark that ends a sentence: white space, or a capital at once, as after a lost break.
_END = re.compile(r"(?<=[.!?])[\"')]*(?:\s+|(?=[A-Z][a-z]))")
_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"'})


def _split_around(match: re.Match[str]) -> str:
    return f" {match[0]} "


def _split_before(match: re.Match[str]) -> str:
    return f" {match[0]}"


# A string that a text must contain for the rule to apply, the pattern, and its replacement. For
# speed: most texts contain few of the strings, patterns begin with a sign and look back afterwards,
# and a function is faster than a template with groups.
_RULES: list[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    ("'", re.compile(r"'(?<![\w']')(?!'|(?i:s|re|ve|ll|d|m|em|til|tis|twas)\b)"), " ` "),
    ('"', re.compile(r"(^|[\s(\[])\""), r"\1`` "),
    ('"', re.compile(r"\""), " '' "),
    ("..", re.compile(r"\.\.+"), " ... "),
    ("", re.compile(r"--+|\u2014|\u2013"), " -- "),
    ("", re.compile(r"[,:;!?()\[\]{}&$%#@*<>](?!(?<=\d[,:])\d)"), _split_around),
    (".", re.compile(r"\.(?<![.A-Z]\.)(?=\s*(?:''|\)|$))"), " . "),
    ("'", re.compile(r"[nN](?<=\w[nN])'[tT]\b"), _split_before),
    ("'", re.compile(r"'(?<=\w')(?i:s|re|ve|ll|d|m)\b"), _split_before),
    ("'", re.compile(r"'(?<=\w')(?!\w)"), _split_around),
]
_CANNOT = re.compile(r"\b(can)(not)\b", re.IGNORECASE)


def treebank_tokens(text: str) -> list[str]:
    """The words of an English text, split as in the Penn Treebank: ``does n't``, ``it 's``."""
    if not text.isascii():
        text = text.translate(_QUOTES)
    for needed, pattern, replacement in _RULES:
        if needed in text:
            text = pattern.sub(replacement, text)
    if "cannot" in text.lower():
        text = _CANNOT.sub(r"\1 \2", text)
    return text.split()


def iterate_unlabelled(path: Path) -> Iterator[str]:
    """The sentences of the archive of reviews, or the lines of a file, each as it is written."""
    if ".tar" in path.suffixes:
        for review in _reviews(path):
            for sentence in _END.split(_BREAK.sub(" ", review)):
                if SHORTEST <= len(sentence.split()) <= LONGEST:
                    yield " ".join(sentence.split())
        return
    with open_bytes(path) as stream:
        for line in stream:
            yield line.decode("utf-8").strip()


def count_unlabelled(path: Path, _: str = "") -> int:
    """The reviews of the archive, or the lines of a file."""
    return sum(1 for _ in (_reviews(path) if ".tar" in path.suffixes else iterate_unlabelled(path)))


def _reviews(path: Path) -> Iterator[str]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if _REVIEW.fullmatch(member.name) and (file := archive.extractfile(member)):
                    yield file.read().decode("utf-8")
    except (tarfile.TarError, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read ({reason}); download it again") from error
