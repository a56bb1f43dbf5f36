"""Predictions as a file of columns: label, probability and text, in Parquet, Arrow or Feather.

Labels keep their type. With ``--top 3`` the next best follow as ``label_2``, ``probability_2``,
``label_3`` and ``probability_3``. Where the model abstains the labels are null. Where a text may
have several labels, ``labels`` and ``probabilities`` are lists of those that it is given.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dcnn.artifact import Label
from dcnn.data.arrow_files import ARROW, PARQUET
from dcnn.errors import MissingExtraError, UserError
from dcnn.predictor import Prediction

ROWS_TOGETHER = 1 << 16  # rows a group; smaller ones make a larger file that is slower to read

Write = Callable[[Sequence[Prediction]], None]


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
    stream: BinaryIO, suffix: str, classes: Sequence[Label], top: int, many: bool = False
) -> Iterator[Write]:
    """Write predictions a few thousand at a time; what is held is bounded."""
    import pyarrow
    from pyarrow import ipc, parquet

    kind = _label_type(classes)
    as_strings = kind == pyarrow.string()
    schema = _list_schema(kind) if many else _schema(kind, min(top, len(classes)))
    waiting: list[Any] = []

    def write_waiting() -> None:
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting).combine_chunks())
            waiting.clear()

    def write(predictions: Sequence[Prediction]) -> None:
        columns: dict[str, list[object]] = {name: [] for name in schema.names}
        ranks = list(zip(schema.names[:-1:2], schema.names[1:-1:2], strict=True))

        def named(label: Label) -> Label:
            return str(label) if as_strings else label

        for prediction in predictions:
            if many:
                columns["labels"].append([named(label) for label in prediction.labels])
                columns["probabilities"].append([p for _, p in prediction.ranked_labels])
            else:
                for (label, probability), best in zip(ranks, prediction.ranked, strict=False):
                    columns[label].append(None if prediction.abstained else named(best[0]))
                    columns[probability].append(best[1])
            # Half a surrogate pair has no code, and is replaced as it is in lines.
            columns["text"].append(prediction.text.encode("utf-8", "replace").decode())
        waiting.append(pyarrow.RecordBatch.from_pydict(columns, schema))
        if sum(batch.num_rows for batch in waiting) >= ROWS_TOGETHER:
            write_waiting()

    if suffix == PARQUET:
        writer = parquet.ParquetWriter(stream, schema)
    else:  # .arrow is left as it can be mapped into memory, .feather is compressed as usual
        compression = "lz4" if suffix == ".feather" else None
        options = ipc.IpcWriteOptions(compression=compression)
        writer = ipc.new_file(stream, schema, options=options)
    with writer:
        yield write
        write_waiting()


def _label_type(classes: Sequence[Label]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(list(classes)).type
    except (pyarrow.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        return pyarrow.string()


def _list_schema(label: Any) -> Any:
    import pyarrow

    lists = [("labels", pyarrow.list_(label)), ("probabilities", pyarrow.list_(pyarrow.float32()))]
    return pyarrow.schema([*lists, ("text", pyarrow.string())])


def _schema(label: Any, top: int) -> Any:
    import pyarrow

    fields = []
    for rank in range(1, top + 1):
        end = "" if rank == 1 else f"_{rank}"
        fields += [(f"label{end}", label), (f"probability{end}", pyarrow.float32())]
    return pyarrow.schema([*fields, ("text", pyarrow.string())])
