"""Predictions as files: one for all texts, or one per shard of a corpus.

The columns are those of the input, or the text, then label and probability. In columnar files
labels keep their type, and are null if the model abstains. With ``--top 2`` the next best follow as
``label_2`` and ``probability_2``. For a multi-label model, ``labels`` and ``probabilities`` are
lists.

A scored shard is a Parquet file that is written atomically, and whose metadata holds digests of
what it was made from: the input, the model and the settings. A new run skips the files that
match, and writes the others. So a worker may die at any moment, and two may even score the same
shard: no row is lost or written twice. The names of the files sort like the inputs.

On Ray Data, a pool of workers scores one shard per task. Only paths and counts are sent; the disk,
which all machines must share, has the rest. Ray restarts a worker that dies and repeats its task.
"""

import glob
import hashlib
import json
import logging
import os
import socket
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dcnn import artifact as model_folder
from dcnn.batch_predict.lines import OutputFormat
from dcnn.data.arrow import ARROW, PARQUET
from dcnn.data.columns import shown, shown_names
from dcnn.data.readers import Row, TableOptions, find_shards, is_shard, read_rows
from dcnn.data.records import JSON_LINES, NoRowsError
from dcnn.data.tables import table_writer
from dcnn.errors import DataError, DcnnError, ModelFolderError, StorageError, UserError
from dcnn.files import bare_suffix, file_sha256, make_folder, write_atomically
from dcnn.predictor import Floats, Predictor

CHUNK, RANKED = 4096, 1 << 20  # texts predicted together, and their probabilities in all: at most
ATTEMPTS = 4  # at a shard whose workers die
MADE_FROM = "dcnn.made_from"  # in the metadata of a scored shard
DIGITS = 5  # of a shard's number, at least

_log = logging.getLogger("dcnn")


@contextmanager
def prediction_writer(
    stream: BinaryIO,
    suffix: str,
    predictor: Predictor,
    form: OutputFormat,
    kept: Mapping[str, Any] | None = None,
    *,
    escape: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Iterator[Callable[[Sequence[Row]], int]]:
    """Yields the function that classifies and writes rows, and counts those without a label.

    ``kept`` has the columns of the input that are written too, with their Arrow types; it is filled
    when the first row is read. If it is None or empty, only the text is written.
    """
    own = form.columns(predictor)
    names: dict[str, str] = {}
    labels = _label_array(predictor) if suffix in ARROW else None
    if suffix in JSON_LINES:
        own = ["label", "labels", "abstained", "probability", "top", "probabilities"]

    def write(rows: Sequence[Row]) -> int:
        nonlocal names
        names = names or _unlike(own, kept or ())
        texts = [row.text for row in rows]
        if labels is not None:
            arrays, abstained = _columns(labels, predictor, form, predictor.probabilities(texts))
            write_columns(_kept(rows, kept) | dict(zip(names.values(), arrays, strict=True)))
            return abstained
        predictions = predictor.predict(texts, form.abstain_below or 0.0)
        if suffix in JSON_LINES:
            for row, one in zip(rows, predictions, strict=True):
                values = {names[name]: value for name, value in form.values(one).items()}
                inputs = {"text": row.text} if row.values is None else row.values
                if clash := inputs.keys() & values.keys():
                    raise _clash(f"{row.place}: the key", clash)
                write_columns({name: [value] for name, value in {**inputs, **values}.items()})
        else:
            fields = [form.fields(one, predictor.classes) for one in predictions]
            cells = zip(*fields, strict=True) if fields else ([] for _ in names)
            write_columns(_kept(rows, kept) | dict(zip(names.values(), cells, strict=True)))
        return sum(one.abstained for one in predictions)

    with table_writer(
        stream, suffix, escape=escape, types=kept, metadata=metadata
    ) as write_columns:
        yield write


def _unlike(own: Sequence[str], kept: Collection[str]) -> dict[str, str]:
    """The columns of a prediction; one that the input has too is ``NAME_predicted``."""
    names = {name: f"{name}_predicted" if name in kept else name for name in own}
    if clash := set(names.values()) & set(kept):
        raise _clash("the column", clash)
    for name, new in names.items():
        if name != new:
            _log.info("the input has a column %s; the prediction is in %s", shown(name), shown(new))
    return names


def _clash(what: str, names: Collection[str]) -> DataError:
    return DataError(
        f"{what} {shown_names(sorted(names))} of the input has the name of one that is written; "
        "rename it, or pass --no-keep"
    )


def _kept(rows: Sequence[Row], kept: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of the input that are written, by name; the text alone if none are kept."""
    if not kept:
        return {"text": [row.text for row in rows]}
    for row in rows:
        if row.values is not None and not row.values.keys() <= kept.keys():
            more = shown_names(sorted(row.values.keys() - kept.keys()))
            raise DataError(
                f"{row.place}: {more} is not among the columns at the start of the input, which "
                f"are {shown_names(kept)}; pass --no-keep, or write a .jsonl file"
            )
    return {name: [(row.values or {}).get(name) for row in rows] for name in kept}


def _label_array(predictor: Predictor) -> Any:
    import pyarrow

    try:
        return pyarrow.array(predictor.classes)
    except (pyarrow.ArrowException, OverflowError):  # of several types, or beyond 64 bits
        return pyarrow.array([str(label) for label in predictor.classes])


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
        lists = [pyarrow.ListArray.from_arrays(ends, part) for part in parts]
        return [*lists, *map(pyarrow.array, probabilities.T[: len(labels) * form.all_labels])], 0
    abstained = np.zeros(len(ranked), np.bool_)
    if form.abstain_below:
        best = ranked[:, 0].astype(np.float64)
        abstained = predictor.abstains(ranking[:, 0], best, form.abstain_below)
    columns: list[Any] = []
    for rank in range(min(form.top, len(labels))):
        chosen = pyarrow.array(ranking[:, rank], mask=abstained)
        columns += [labels.take(chosen), pyarrow.array(ranked[:, rank])]
    columns += map(pyarrow.array, probabilities.T[: len(labels) * form.all_labels])
    return columns, int(abstained.sum())


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
    keep: bool = True
    all_labels: bool = False


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
        name = f"{number:0{digits}}-{stem[:80]}{PARQUET}"
        shards.append(Shard(path.absolute(), output.absolute() / name))
    if any(is_shard(source, shard.target) for shard in shards):
        raise UserError(
            f"--output {output} is among the files of --input {source}; name another folder"
        )
    if output.exists() and not output.is_dir():
        raise UserError(
            f"--output {output} is a file, and shards are scored into a folder; name another"
        )
    known = {shard.target.name for shard in shards}
    for name in sorted(path.name for path in make_folder(output).iterdir()):
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
    below, every = config.abstain_below, config.all_labels
    form = OutputFormat(top=config.top, abstain_below=below, all_labels=every)
    kept: dict[str, Any] | None = {} if config.keep else None
    try:
        inputs = {"input": file_sha256(shard.source), **asdict(config)}
        made_from = json.dumps(inputs, sort_keys=True)
        if (scored := _rows_of(shard.target, made_from)) is not None:
            return Outcome(scored, kept=True)
        if len(_half_written(shard)) >= ATTEMPTS:
            raise DataError(
                f"{shard.source}: {ATTEMPTS} workers died of it, perhaps out of memory; "
                "split it, or use fewer workers"
            )
        with (
            write_atomically(shard.target, shared=True) as stream,
            prediction_writer(
                stream, PARQUET, predictor, form, kept, metadata={MADE_FROM: made_from}
            ) as write,
        ):
            found = read_rows(shard.source, config.columns, labels=False, keep=kept)
            most = min(CHUNK, 1 + RANKED // len(predictor.classes))
            try:
                while chunk := list(islice(found, most)):
                    abstained += write(chunk)
                    rows += len(chunk)
            except NoRowsError:
                write([])  # a shard without rows gives an output without rows
        return Outcome(rows, abstained=abstained)
    except StorageError as error:
        return Outcome(refusal=str(error))
    except UserError as error:
        return Outcome(fault=str(error))


def _rows_of(target: Path, made_from: str) -> int | None:
    """The number of rows of a scored shard that was made from the same; else None."""
    from pyarrow import ArrowException, parquet

    # A column name of a damaged file may be no UTF-8, which is a ValueError.
    with suppress(OSError, ArrowException, ValueError), parquet.ParquetFile(target) as file:
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


class ScoringWorker:
    """A worker of the pool: loads the model once, then scores shards."""

    def __init__(self, model: str, config: ScoringConfig) -> None:
        self.predictor = load_scorer(Path(model), config)
        self.config = config

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Score the shard in ``row``."""
        shard = Shard(Path(row["source"]), Path(row["target"]))
        return asdict(score_shard(self.predictor, self.config, shard))


def score_on_ray(
    model: Path,
    config: ScoringConfig,
    shards: Sequence[Shard],
    workers: int | None,  # by default one per CPU
    address: str | None,
) -> Generator[Outcome, None, None]:
    """Score shards in any order; yield the outcome of each as soon as it is known.

    The cluster is by default that of ``RAY_ADDRESS``, or else a new Ray on this machine.
    """
    import ray
    from ray.data import ActorPoolStrategy

    with _ray(address, workers) as cpus:
        rows = [{"source": str(shard.source), "target": str(shard.target)} for shard in shards]
        data = ray.data.from_items(rows, override_num_blocks=len(rows))
        data.context.enable_progress_bars = False
        # By default Ray restarts a worker that died, and repeats its task, without limit.
        scored = data.map(
            ScoringWorker,
            fn_constructor_args=(str(model.absolute()), config),
            compute=ActorPoolStrategy(size=min(workers or cpus, len(shards))),
            num_cpus=1,
        )
        try:
            for values in scored.iter_rows():
                yield Outcome(**values)
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())
            raise DcnnError(
                f"Ray failed ({reason:.300}); scored shards are kept, and the same command "
                "continues"
            ) from error


@contextmanager
def _ray(address: str | None, workers: int | None) -> Iterator[int]:
    """Yield the number of CPUs of a Ray; one that was already running stays running."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data warns of its own actors
    for name in ("ray", "ray.data"):  # the second has a level of its own
        logging.getLogger(name).setLevel(logging.ERROR)
    started = not ray.is_initialized()
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    address = address or os.environ.get("RAY_ADDRESS")
    if started and address is None:
        quiet |= {"include_dashboard": False, "object_store_memory": 1 << 27}  # for paths, counts
        ray.init("local", num_cpus=workers, **quiet)
    elif started and address is not None:
        check_reachable(address)
        try:
            ray.init(address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _unreachable(address, " ".join(str(error).split())) from error
    try:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < (workers or 1):
            raise UserError(
                f"--workers {workers or 1} needs as many CPUs and this Ray has {cpus}; ask for "
                "fewer, or name a larger cluster with --ray-address"
            )
        yield cpus
    finally:
        if started:
            ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise UserError within seconds if nothing listens at ``HOST:PORT``; Ray takes minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # such as "auto"
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, reason: str) -> UserError:
    return UserError(
        f"there is no Ray at {address} ({reason:.120}); start one with `ray start --head`, or "
        "leave out --ray-address (and RAY_ADDRESS) to use this machine alone"
    )
