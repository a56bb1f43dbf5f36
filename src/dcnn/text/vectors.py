"""Pretrained word vectors in the formats of GloVe and word2vec.

GloVe text (word and numbers), word2vec text (the same after a line "count dimensions") and word2vec
binary (that line, then word, space, float32 values), each compressed or not. A file is read in
bounded memory: only the vectors of words in the vocabulary are kept.
"""

import logging
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from dcnn.errors import ConfigError, DataError
from dcnn.files import open_bytes
from dcnn.text.vocabulary import Ints, Vocabulary

logger = logging.getLogger("dcnn")

Floats = NDArray[np.floating[Any]]
Wanted = Container[bytes] | None  # words as UTF-8; none is every word
Entries = Iterator[tuple[bytes, Floats]]  # wanted words and their vectors


@dataclass(frozen=True)
class WordVectors:
    """The vectors that a file has for the words of a vocabulary."""

    source: str  # the file, for messages
    ids: Ints  # (found,) of the words that were found
    values: Floats  # (found, dimensions of the file) float32

    @property
    def centred(self) -> Floats:
        """The vectors minus their mean."""
        return cast("Floats", self.values - self.values.mean(axis=0))

    def in_dimensions(self, dim: int, generator: np.random.Generator) -> Floats:
        """The vectors in ``dim`` dimensions, (found, dim); see ``reduction``."""
        if self.values.shape[1] == dim:
            return self.values
        return cast("Floats", self.centred @ self.reduction(dim, generator))

    def reduction(self, dim: int, generator: np.random.Generator) -> Floats:
        """The matrix that reduces centred vectors, (dimensions of the file, dim).

        PCA, then a random rotation: rows are convolved separately, so no row should hold all of
        the variance.
        """
        dimensions = self.values.shape[1]
        if dimensions < dim:
            raise ConfigError(
                f"{self.source} has vectors of {dimensions} dimensions, below dim={dim}; "
                f"set model.dim to {dimensions} or less"
            )
        directions = np.linalg.eigh(self.centred.T @ self.centred).eigenvectors  # least first
        rotation, _ = np.linalg.qr(generator.standard_normal((dim, dim)))
        return cast("Floats", (directions[:, -dim:] @ rotation).astype(np.float32))


_LONGEST_LINE, _MAX_DIMENSIONS = 1 << 20, 10_000


def load_vectors(path: Path, vocabulary: Vocabulary) -> WordVectors:
    """Find the vectors of a vocabulary."""
    encoded = (word.encode("utf-8", "replace") for word in vocabulary.words)
    wanted = {word: index for index, word in enumerate(encoded, start=1)}
    found: dict[int, Floats] = {}
    with open_bytes(path) as stream:
        for word, vector in _read_entries(path, stream, wanted):
            found.setdefault(wanted[word], vector)
    words = len(vocabulary) - 1
    if not found:
        raise DataError(f"{path} has a vector for none of the {words} words of the vocabulary")
    covered = f"{len(found):,} of {words:,} words of the vocabulary"
    logger.info("%s covers %s (%.1f %%)", path.name, covered, 100 * len(found) / words)
    values = np.stack(list(found.values())).astype(np.float32)
    return WordVectors(str(path), np.fromiter(found, np.int64), values)


def words_of(path: str, wanted: Wanted = None) -> Iterator[str]:
    """The words of a file, in its order."""
    with open_bytes(Path(path)) as stream:
        for word, _ in _read_entries(Path(path), stream, wanted):
            yield word.decode("utf-8", "replace")


def _read_entries(path: Path, stream: BinaryIO, wanted: Wanted) -> Entries:
    first = stream.readline(_LONGEST_LINE)
    header = first.split()
    has_counts = len(header) == 2 and all(part.isdigit() and len(part) < 10 for part in header)
    dimensions = int(header[1]) if has_counts else len(header) - 1
    if has_counts and not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise DataError(
            f"{path}, line 1: {dimensions} dimensions; expected 1 to {_MAX_DIMENSIONS:,}"
        )
    if dimensions < 1:
        raise DataError(
            f"{path}, line 1: expected a word and its numbers, or 'count dimensions'; "
            f"got {first[:60]!r}"
        )
    start = stream.read(1 << 16) if has_counts else first
    if has_counts and _is_binary(start, dimensions):
        return _read_binary(path, stream, start, wanted, int(header[0]), dimensions)
    return _read_text(path, _lines(start, stream), wanted, dimensions, 1 + has_counts)


def _is_binary(start: bytes, dimensions: int) -> bool:
    """Whether what follows the header is not a line of a word and ``dimensions`` numbers."""
    line = start.partition(b"\n")[0]
    try:
        [float(part) for part in line.split()[-dimensions:]]
    except ValueError:
        return True
    return len(line.split()) <= dimensions


def _lines(start: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """The lines of ``start`` and then of ``stream``."""
    *complete, rest = start.split(b"\n")
    yield from complete
    if rest:
        yield rest + stream.readline(_LONGEST_LINE)
    yield from iter(lambda: stream.readline(_LONGEST_LINE), b"")


def _read_text(
    path: Path, lines: Iterator[bytes], wanted: Wanted, dimensions: int, first_line: int
) -> Entries:
    for number, line in enumerate(lines, start=first_line):
        word, *numbers = line.rstrip().rsplit(b" ", dimensions)  # a word may hold spaces itself
        unwanted = wanted is not None and word not in wanted
        if (not numbers and not word) or (len(numbers) == dimensions and unwanted):
            continue
        try:
            vector = np.array(numbers, dtype=np.float32)
        except ValueError:
            vector = np.empty(0, np.float32)
        if len(vector) != dimensions or not np.isfinite(vector).all():
            raise DataError(
                f"{path}, line {number}: expected a word and {dimensions} finite numbers; "
                f"got {line[:60]!r}"
            )
        yield word, vector


def _read_binary(
    path: Path, stream: BinaryIO, start: bytes, wanted: Wanted, count: int, dimensions: int
) -> Entries:
    buffer, position, size = start, 0, 4 * dimensions
    for number in range(count):
        while (space := buffer.find(b" ", position)) < 0 or len(buffer) < space + 1 + size:
            more = stream.read(1 << 20)
            if not more or (space < 0 and len(buffer) - position > 1 << 20):
                raise DataError(
                    f"{path}: cut short or damaged, {number} of {count} vectors could be read"
                )
            buffer, position = buffer[position:] + more, 0
        word = buffer[position:space].lstrip(b"\n")
        if wanted is None or word in wanted:
            vector = np.frombuffer(buffer, "<f4", dimensions, space + 1).copy()  # frees the buffer
            if not np.isfinite(vector).all():
                raise DataError(f"{path}: vector {number + 1} holds values that are not finite")
            yield word, vector
        position = space + 1 + size
