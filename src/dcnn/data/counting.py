"""Reading a file of a corpus from end to end, to count its examples and find it well-formed."""

from pathlib import Path

from dcnn.data.sentiment140 import iterate_sentiment140
from dcnn.data.sst import read_trees
from dcnn.data.trec import read_trec
from dcnn.errors import DataError
from dcnn.files import open_bytes

GLOVE_DIMENSIONS = 100


def count_trees(path: Path, _member: str = "") -> int:
    """The trees of a file of the Stanford Sentiment Treebank."""
    return len(read_trees(path))


def count_questions(path: Path, _member: str = "") -> int:
    """The questions of a TREC file."""
    return len(read_trec(path).texts)


def count_tweets(path: Path, member: str = "") -> int:
    """The positive and negative tweets of a Sentiment140 file."""
    return sum(1 for _ in iterate_sentiment140(path, member))


def count_vectors(path: Path, member: str = "") -> int:
    """The vectors of a GloVe file of 100 dimensions; their words hold no spaces."""
    number = 0
    with open_bytes(path, member) as stream:
        for number, line in enumerate(stream, start=1):
            if line.count(b" ") != GLOVE_DIMENSIONS:
                raise DataError(
                    f"{path}, line {number}: expected a word and {GLOVE_DIMENSIONS} numbers; "
                    f"got {line[:60]!r}; fetch the file again"
                )
    return number
