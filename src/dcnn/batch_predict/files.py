"""Predictions as a file of columns: label, probability and text, in Parquet, Arrow or Feather.

Labels keep their type. With ``--top 3`` the next best follow as ``label_2``, ``probability_2``,
``label_3`` and ``probability_3``. Where the model abstains the labels are null. Where a text may
have several labels, ``labels`` and ``probabilities`` are lists of those that it is given.

"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from dcnn.artifact import Label
from dcnn.data.arrow import ARROW, PARQUET
from dcnn.errors import MissingExtraError, UserError
from dcnn.predictor import Floats, Predictor

ROWS_TOGETHER = 1 << 16  # rows a group; smaller ones make a larger file that is slower to read

# Takes texts and their (texts, classes) probabilities; returns how many of them got no label.
Write = Callable[[Sequence[str], Floats], int]


@dataclass(frozen=True)
class ColumnForm:
    """What a row says of a text.

    Attributes:
        classes: the labels, in the order of the probabilities.
        top: how many labels of each text.
        thresholds: of the labels, where a text may have several; none where it has one.
        abstain_below: a text without a label of this probability gets none.
    """

    classes: tuple[Label, ...]
    top: int = 1
    thresholds: tuple[float, ...] | None = None
    abstain_below: float = 0.0

    @classmethod
    def of(cls, predictor: Predictor, top: int, abstain_below: float) -> Self:
        """That of the predictions of ``predictor``."""
        return cls(predictor.classes, top, predictor.artifact.thresholds, abstain_below)

    def schema(self) -> Any:
        """Names and types of all columns."""
        import pyarrow

        label, number = _label_type(self.classes), pyarrow.float32()
        fields = [("labels", pyarrow.list_(label)), ("probabilities", pyarrow.list_(number))]
        if self.thresholds is None:
            fields = []
            for rank in range(1, min(self.top, len(self.classes)) + 1):
                end = "" if rank == 1 else f"_{rank}"
                fields += [(f"label{end}", label), (f"probability{end}", number)]
        return pyarrow.schema([*fields, ("text", pyarrow.string())])

    def columns(self, probabilities: Floats) -> tuple[list[Any], int]:
        """All but the texts, and how many texts got no label because none was probable enough."""
        import pyarrow

        kind = _label_type(self.classes)
        of_strings = kind == pyarrow.string()
        labels = pyarrow.array(map(str, self.classes) if of_strings else self.classes, kind)
        ranking = np.argsort(-probabilities, axis=1, kind="stable")
        ranked = np.take_along_axis(probabilities, ranking, axis=1)
        if self.thresholds is not None:
            over = ranked.astype(np.float64) >= np.array(self.thresholds)[ranking]
            ends = np.concatenate([[0], np.cumsum(over.sum(axis=1))]).astype(np.int32)
            members = (labels.take(pyarrow.array(ranking[over])), pyarrow.array(ranked[over]))
            return [pyarrow.ListArray.from_arrays(ends, part) for part in members], 0
        abstained = ranked[:, 0].astype(np.float64) < self.abstain_below
        columns: list[Any] = []
        for rank in range(min(self.top, len(self.classes))):
            chosen = pyarrow.array(ranking[:, rank], mask=abstained)
            columns += [labels.take(chosen), pyarrow.array(ranked[:, rank])]
        return columns, int(abstained.sum())


def is_columnar(output: Path) -> bool:
    """Whether the suffix is that of a file of columns."""
    return output.suffix.lower() in ARROW


def check_columnar(output: Path, as_json: bool) -> None:
    """Find before any work what stands in the way of such a file.

    Raises:
        UserError: JSON is asked for as well.
        MissingExtraError: pyarrow is not installed.
    """
    if as_json:
        raise UserError(
            f"--json writes lines, and --output {output} names a file of columns; "
            "leave out --json, or name a .jsonl file"
        )
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"Writing {output.name}", "data") from None


@contextmanager
def columnar_writer(
    stream: BinaryIO, suffix: str, form: ColumnForm, about: dict[str, str] | None = None
) -> Iterator[Write]:
    """Write predictions a few thousand at a time; what is held is bounded.

    Args:
        stream: where to.
        suffix: names the format.
        form: what a row says of a text.
        about: what the file's metadata says of it.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    schema = form.schema()
    if about:
        schema = schema.with_metadata(about)
    waiting: list[Any] = []

    def write_waiting() -> None:
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting).combine_chunks())
            waiting.clear()

    def write(texts: Sequence[str], probabilities: Floats) -> int:
        columns, abstained = form.columns(probabilities)
        columns.append(_strings(texts))
        waiting.append(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
        if sum(batch.num_rows for batch in waiting) >= ROWS_TOGETHER:
            write_waiting()
        return abstained

    if suffix == PARQUET:
        writer = parquet.ParquetWriter(stream, schema)
    else:  # .arrow is left as it can be mapped into memory, .feather is compressed as usual
        compression = "lz4" if suffix == ".feather" else None
        options = ipc.IpcWriteOptions(compression=compression)
        writer = ipc.new_file(stream, schema, options=options)
    with writer:
        yield write
        write_waiting()


def _strings(texts: Sequence[str]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(texts, pyarrow.string())
    except UnicodeEncodeError:
        # Half a surrogate pair has no code, and is replaced as it is in lines.
        replaced = [text.encode("utf-8", "replace").decode() for text in texts]
        return pyarrow.array(replaced, pyarrow.string())


def _label_type(classes: Sequence[Label]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(list(classes)).type
    except (pyarrow.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        return pyarrow.string()
