"""Predictions as a columnar file: label, probability and text, in Parquet, Arrow or Feather.

Labels keep their type. With ``--top 3`` the next best follow as ``label_2``, ``probability_2``,
``label_3`` and ``probability_3``. If the model abstains, the labels are null. For a multi-label
model, ``labels`` and ``probabilities`` are lists.
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

ROWS_TOGETHER = 1 << 16  # rows per group; smaller ones make a larger file that is slower to read

# Takes texts and their (texts, classes) probabilities; returns how many texts have no label.
Write = Callable[[Sequence[str], Floats], int]


@dataclass(frozen=True)
class ColumnForm:
    """The columns of a file of predictions.

    Attributes:
        classes: the labels, in the order of the probabilities.
        top: labels per text.
        thresholds: of the labels of a multi-label model; None for a single-label model.
        abstain_below: a text whose best probability is lower gets no label.
    """

    classes: tuple[Label, ...]
    top: int = 1
    thresholds: tuple[float, ...] | None = None
    abstain_below: float = 0.0

    @classmethod
    def of(cls, predictor: Predictor, top: int, abstain_below: float) -> Self:
        """The columns for the predictions of ``predictor``."""
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
        """All columns except the texts, and how many texts have no label because of abstaining."""
        import pyarrow

        kind = _label_type(self.classes)
        of_strings = kind == pyarrow.string()
        labels = pyarrow.array(map(str, self.classes) if of_strings else self.classes, kind)
        ranking = np.argsort(-probabilities, axis=1, kind="stable")
        ranked = np.take_along_axis(probabilities, ranking, axis=1)
        if self.thresholds is not None:
            over = ranked.astype(np.float64) >= np.array(self.thresholds)[ranking]
            ends = np.concatenate([[0], np.cumsum(over.sum(axis=1))]).astype(np.int32)
            parts = (labels.take(pyarrow.array(ranking[over])), pyarrow.array(ranked[over]))
            return [pyarrow.ListArray.from_arrays(ends, part) for part in parts], 0
        abstained = ranked[:, 0].astype(np.float64) < self.abstain_below
        columns: list[Any] = []
        for rank in range(min(self.top, len(self.classes))):
            chosen = pyarrow.array(ranking[:, rank], mask=abstained)
            columns += [labels.take(chosen), pyarrow.array(ranked[:, rank])]
        return columns, int(abstained.sum())


def is_columnar(output: Path) -> bool:
    """Whether the suffix is that of a columnar file."""
    return output.suffix.lower() in ARROW


def check_columnar(output: Path, as_json: bool) -> None:
    """Raise UserError for ``--json``, and MissingExtraError without pyarrow, before any work."""
    if as_json:
        raise UserError(
            f"--json writes lines, and --output {output} names a columnar file; "
            "leave out --json, or name a .jsonl file"
        )
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"Writing {output.name}", "data") from None


@contextmanager
def columnar_writer(
    stream: BinaryIO, suffix: str, form: ColumnForm, metadata: dict[str, str] | None = None
) -> Iterator[Write]:
    """Write predictions in chunks, in bounded memory.

    Args:
        stream: the open file.
        suffix: of the format.
        form: its columns.
        metadata: of the file.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    schema = form.schema()
    if metadata:
        schema = schema.with_metadata(metadata)
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
    else:  # an uncompressed .arrow file can be memory-mapped; .feather is compressed as usual
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
        # A lone surrogate has no UTF-8 code; it is replaced, as in lines.
        replaced = [text.encode("utf-8", "replace").decode() for text in texts]
        return pyarrow.array(replaced, pyarrow.string())


def _label_type(classes: Sequence[Label]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(list(classes)).type
    except (pyarrow.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        return pyarrow.string()
