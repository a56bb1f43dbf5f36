"""Predictions as a columnar file: label, probability and text, in Parquet, Arrow or Feather.

Labels keep their type. With ``--top 3`` the next best follow as ``label_2``, ``probability_2``,
``label_3`` and ``probability_3``. If the model abstains, the labels are null. For a multi-label
model, ``labels`` and ``probabilities`` are lists.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dcnn.batch_predict.lines import OutputFormat
from dcnn.data.arrow import ARROW, PARQUET
from dcnn.errors import UserError, needs_extra
from dcnn.predictor import Floats, Predictor

ROWS_TOGETHER = 1 << 16  # rows per group; smaller ones make a larger file that is slower to read


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
    with needs_extra(f"Writing {output.name}", "data"):
        import pyarrow  # noqa: F401


@contextmanager
def columnar_writer(
    stream: BinaryIO,
    suffix: str,
    predictor: Predictor,
    form: OutputFormat,
    metadata: dict[str, str] | None = None,
) -> Iterator[Callable[[Sequence[str]], int]]:
    """Yields the function that classifies and writes texts, and counts those without a label.

    Called with one chunk of texts after another, it needs bounded memory.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    try:
        labels = pyarrow.array(predictor.classes)
    except (pyarrow.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        labels = pyarrow.array([str(label) for label in predictor.classes])
    number = pyarrow.float32()
    fields = [("labels", pyarrow.list_(labels.type)), ("probabilities", pyarrow.list_(number))]
    if not predictor.multi_label:
        fields = []
        for rank in range(1, min(form.top, len(labels)) + 1):
            end = "" if rank == 1 else f"_{rank}"
            fields += [(f"label{end}", labels.type), (f"probability{end}", number)]
    schema = pyarrow.schema([*fields, ("text", pyarrow.string())], metadata)
    waiting: list[Any] = []

    def write_waiting() -> None:
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting).combine_chunks())
            waiting.clear()

    def write(texts: Sequence[str]) -> int:
        columns, abstained = _columns(labels, predictor, form, predictor.probabilities(texts))
        try:
            columns.append(pyarrow.array(texts, pyarrow.string()))
        except UnicodeEncodeError:  # a lone surrogate, which is replaced, as in lines
            columns.append(pyarrow.array([t.encode("utf-8", "replace").decode() for t in texts]))
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


def _columns(
    labels: Any, predictor: Predictor, form: OutputFormat, probabilities: Floats
) -> tuple[list[Any], int]:
    """All columns except the texts, and how many texts have no label because of abstaining."""
    import pyarrow

    ranking = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, ranking, axis=1)
    if predictor.artifact.thresholds is not None:
        over = ranked.astype(np.float64) >= np.array(predictor.artifact.thresholds)[ranking]
        ends = np.concatenate([[0], np.cumsum(over.sum(axis=1))]).astype(np.int32)
        parts = (labels.take(pyarrow.array(ranking[over])), pyarrow.array(ranked[over]))
        return [pyarrow.ListArray.from_arrays(ends, part) for part in parts], 0
    abstained = ranked[:, 0].astype(np.float64) < (form.abstain_below or 0.0)
    columns: list[Any] = []
    for rank in range(min(form.top, len(labels))):
        chosen = pyarrow.array(ranking[:, rank], mask=abstained)
        columns += [labels.take(chosen), pyarrow.array(ranked[:, rank])]
    return columns, int(abstained.sum())
