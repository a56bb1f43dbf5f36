"""Predictions as a file of columns: label, probability and text, in Parquet, Arrow or Feather.

Labels keep their type. With ``--top 3`` the next best follow as ``label_2``, ``probability_2``,
``label_3`` and ``probability_3``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dcnn.artifact import Label
from dcnn.data.arrow_files import ARROW, PARQUET
from dcnn.errors import MissingExtraError, UserError
from dcnn.predictor import Floats

ROWS_TOGETHER = 1 << 16  # rows a group; smaller ones make a larger file that is slower to read

# Takes texts and their (texts, classes) probabilities.
Write = Callable[[Sequence[str], Floats], None]


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
    stream: BinaryIO,
    suffix: str,
    classes: Sequence[Label],
    top: int,
    about: dict[str, str] | None = None,
) -> Iterator[Write]:
    """Write predictions a few thousand at a time; what is held is bounded.

    Args:
        stream: where to.
        suffix: names the format.
        classes: the labels, in the order of the probabilities.
        top: how many labels of each text.
        about: what the file's metadata says of it.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    shown = min(top, len(classes))
    schema = _schema(classes, shown)
    if about:
        schema = schema.with_metadata(about)
    of_strings = schema.field("label").type == pyarrow.string()
    labels = pyarrow.array(
        [str(label) for label in classes] if of_strings else list(classes),
        schema.field("label").type,
    )
    waiting: list[Any] = []

    def write_waiting() -> None:
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting).combine_chunks())
            waiting.clear()

    def write(texts: Sequence[str], probabilities: Floats) -> None:
        ranking = np.argsort(-probabilities, axis=1, kind="stable")[:, :shown]
        ranked = np.take_along_axis(probabilities, ranking, axis=1)
        columns: list[Any] = []
        for rank in range(shown):
            columns += [
                labels.take(pyarrow.array(ranking[:, rank])),
                pyarrow.array(ranked[:, rank]),
            ]
        columns.append(_strings(texts))
        waiting.append(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
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


def _strings(texts: Sequence[str]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(texts, pyarrow.string())
    except (
        UnicodeEncodeError
    ):  # half a surrogate pair has no code, and is replaced as it is in lines
        replaced = [text.encode("utf-8", "replace").decode() for text in texts]
        return pyarrow.array(replaced, pyarrow.string())


def _schema(classes: Sequence[Label], top: int) -> Any:
    import pyarrow

    try:
        label = pyarrow.array(list(classes)).type
    except (pyarrow.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        label = pyarrow.string()
    fields = []
    for rank in range(1, top + 1):
        end = "" if rank == 1 else f"_{rank}"
        fields += [(f"label{end}", label), (f"probability{end}", pyarrow.float32())]
    return pyarrow.schema([*fields, ("text", pyarrow.string())])
