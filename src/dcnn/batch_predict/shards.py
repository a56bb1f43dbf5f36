"""Score a corpus shard by shard, each into its own file, so that a run can be repeated.

A scored shard is a Parquet file that is written atomically, and whose metadata holds digests of
what it was made from: the input, the model and the settings. A new run skips the files that
match, and writes the others. So a worker may die at any moment, and two may even score the same
shard: no row is lost or written twice. The names of the files sort like the inputs, and rows keep
their order.
"""

import glob
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from dcnn import artifact as model_folder
from dcnn.batch_predict.files import columnar_writer
from dcnn.batch_predict.lines import OutputFormat
from dcnn.data.arrow import PARQUET
from dcnn.data.readers import TableOptions, find_shards, is_shard, read_rows
from dcnn.data.records import NoRowsError
from dcnn.errors import DataError, ModelFolderError, StorageError, UserError
from dcnn.files import bare_suffix, file_sha256, write_atomically
from dcnn.predictor import Predictor

CHUNK = 4096  # texts predicted together
ATTEMPTS = 4  # at a shard whose workers die
MADE_FROM = "dcnn.made_from"  # in the metadata of a scored shard

DIGITS = 5  # of a shard's number, at least
_LONGEST_STEM = 80


@dataclass(frozen=True)
class Shard:
    """A file of texts, and the file of its predictions."""

    source: Path
    target: Path


@dataclass(frozen=True)
class ScoringConfig:
    """What decides the content of a scored shard, besides its texts; see ``OutputFormat``."""

    model: str  # the fingerprint of the model folder
    columns: TableOptions
    top: int = 1
    abstain_below: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The result for a shard."""

    rows: int = 0
    kept: bool = False  # whether it had been scored before
    abstained: int = 0  # rows without a label, if it was scored now
    fault: str = ""  # what is wrong with the input
    refusal: str = ""  # why the disk refused the output


def plan_shards(source: Path, output: Path) -> list[Shard]:
    """A scored shard in the folder ``output``, which is created, for each file of ``source``."""
    sources = find_shards(source)
    digits = max(DIGITS, len(str(len(sources) - 1)))
    shards = []
    for number, path in enumerate(sources):
        stem = path.name[: path.name.lower().rfind(bare_suffix(path))]
        name = f"{number:0{digits}}-{stem[:_LONGEST_STEM]}{PARQUET}"
        shards.append(Shard(path.absolute(), output.absolute() / name))
    if any(is_shard(source, shard.target) for shard in shards):
        raise UserError(
            f"--output {output} is among the files of --input {source}; name another folder"
        )
    if output.exists() and not output.is_dir():
        raise UserError(
            f"--output {output} is a file, and shards are scored into a folder; name another"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{output} cannot be created ({error.strerror})") from error
    known = {shard.target.name for shard in shards}
    for name in sorted(path.name for path in output.iterdir()):
        if name not in known and not name.startswith((".", "_")):
            raise UserError(
                f"--output {output} holds {name}, which is no scored shard of {source}; "
                "name an empty folder, so that no row is counted twice"
            )
    return shards


def model_fingerprint(model: Path) -> str:
    """A digest of the files that decide what a model predicts."""
    files = (model_folder.CONFIG, model_folder.WEIGHTS, model_folder.TOKENIZER)
    return hashlib.sha256("".join(file_sha256(model / name) for name in files).encode()).hexdigest()


def load_scorer(model: Path, config: ScoringConfig) -> Predictor:
    """The model; raises ModelFolderError if it is no longer the one that the run began with."""
    predictor = Predictor.load(model)
    if model_fingerprint(model) != config.model:
        raise ModelFolderError(f"{model} has been replaced meanwhile; run the command again")
    return predictor


def score_shard(predictor: Predictor, config: ScoringConfig, shard: Shard) -> Outcome:
    """Write the predictions of a shard, unless they exist; in bounded memory."""
    rows = abstained = 0
    form = OutputFormat(top=config.top, abstain_below=config.abstain_below)
    try:
        inputs = {"input": file_sha256(shard.source), **asdict(config)}
        made_from = json.dumps(inputs, sort_keys=True)
        kept = _rows_of(shard.target, made_from)
        if kept is not None:
            return Outcome(kept, kept=True)
        if len(_half_written(shard)) >= ATTEMPTS:
            raise DataError(
                f"{shard.source}: {ATTEMPTS} workers died of it, perhaps out of memory; "
                "split it, or use fewer workers"
            )
        with (
            write_atomically(shard.target, shared=True) as stream,
            columnar_writer(stream, PARQUET, predictor, form, {MADE_FROM: made_from}) as write,
            suppress(NoRowsError),  # a shard without rows gives an output without rows
        ):
            texts = (row.text for row in read_rows(shard.source, config.columns, labels=False))
            while chunk := list(islice(texts, CHUNK)):
                abstained += write(chunk)
                rows += len(chunk)
        return Outcome(rows, abstained=abstained)
    except StorageError as error:
        return Outcome(refusal=str(error))
    except UserError as error:
        return Outcome(fault=str(error))


def _rows_of(target: Path, made_from: str) -> int | None:
    """The number of rows of a scored shard that was made from the same; else None."""
    from pyarrow import ArrowException, parquet

    with suppress(OSError, ArrowException), parquet.ParquetFile(target) as file:
        metadata = file.schema_arrow.metadata or {}
        if metadata.get(MADE_FROM.encode()) == made_from.encode():
            return int(file.metadata.num_rows)
    return None


def _half_written(shard: Shard) -> list[Path]:
    """Temporary files of the shard, of processes that died and of those at work."""
    return list(shard.target.parent.glob(f".{glob.escape(shard.target.name)}.*.tmp"))


def clear_half_written(shards: Sequence[Shard]) -> None:
    """Remove the temporary files of processes that died; none may be at work."""
    for shard in shards:
        for path in _half_written(shard):
            path.unlink(missing_ok=True)
