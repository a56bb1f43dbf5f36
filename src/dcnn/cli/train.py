"""``dcnn train``: read and check everything first, then train, evaluate once, and save.

Torch is imported when all input has been checked, so that a typo is reported at once. A corpus that
is larger than memory is encoded on disk first. Whether it is follows from the size of the files
alone, so that a command does the same on every machine; ``--stream`` and ``--no-stream`` override
it. Whether ``torchrun`` started this process as one of several is found out without torch.
"""

import datetime
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.cli import console as cli
from dcnn.cli.evaluate import evaluate_model, print_evaluation
from dcnn.config import Config
from dcnn.data.arrow import ARROW
from dcnn.data.corpora.registry import cache_folder
from dcnn.data.encode import FileEncoder, count_labels, encode_files, prepare_corpus
from dcnn.data.labels import LabelledTexts, check_form, sorted_labels
from dcnn.data.readers import TableOptions, find_shards, read_evaluation_set, read_examples
from dcnn.data.split import hold_out
from dcnn.data.store import Corpus, EncodedFile, Store
from dcnn.errors import (
    ConfigError,
    DataError,
    DcnnError,
    MissingExtraError,
    StorageError,
    TrainingError,
    TrainingStoppedError,
    UserError,
    WorkerLostError,
)
from dcnn.files import COMPRESSIONS
from dcnn.metrics import Evaluation
from dcnn.predictor import Predictor
from dcnn.training.callbacks import (
    Callback,
    CallbackList,
    TensorBoardLog,
    TrainingBar,
    require_tensorboard,
)

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers
    from dcnn.training.trainer import TrainingSummary

# More text than this is not held in memory: six million tweets, which would take four gigabytes.
LARGEST_IN_MEMORY = 512 << 20
# About how many times larger the text of a file is than the file.
_COMPRESSED, _COLUMNAR = 3, 2
# Seconds: once a process has ended, torchrun ends the others well within this time.
WAIT_FOR_FIRST = 3.0


def train(
    data: cli.TrainFiles,
    out: cli.NewModelFolder,
    dev: cli.DevFile = None,
    test: Annotated[
        Path | None, typer.Option(help="Examples to score the finished model on, once.")
    ] = None,
    text_column: cli.TextColumn = None,
    label_column: cli.LabelColumn = None,
    labels_separator: cli.LabelsSeparator = None,
    label_columns: cli.LabelColumns = None,
    weight_column: cli.WeightColumn = None,
    encoding: cli.Encoding = "utf-8",
    no_header: cli.NoHeader = False,
    config: cli.ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting, e.g. model.dim=64; repeatable."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over TRAIN.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same model.")] = None,
    device: cli.Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped or killed.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model folder or unfinished run.")
    ] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0, help="Time between checkpoints.")
    ] = 15.0,
    threads: Annotated[
        int, typer.Option(min=1, help="CPU threads; their number changes rounding.")
    ] = 1,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Log curves there for TensorBoard.")
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Encode TRAIN on disk and train from there, in bounded memory; by default for "
            "large files.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a classifier on labelled texts.

    TRAIN has a column of texts and a column of labels. Text files may be compressed (.gz, .bz2,
    .xz, .zst, .zip); .parquet, .arrow and .feather need the extra `data`. Multi-label data has a
    list of labels per row (.jsonl, .parquet), or is described by --labels-separator or
    --label-columns. The weights that score best on dev are kept.

    \b
    Examples:
      dcnn train reviews.csv --out my-model
      dcnn train train.tsv --dev dev.tsv --test test.tsv --out my-model --seed 1
      dcnn train reviews.csv --out my-model --resume
      dcnn train tweets.jsonl.gz --out m --set text.tokenizer=tweet --set model.dim=60
      dcnn train reviews.csv --out my-model --set text.tokenizer=unigram --set text.n_subwords=8000
      dcnn train posts.csv --out my-model --labels-separator '|'
      dcnn train posts.csv --out my-model --label-columns toxic,spam,off-topic
      dcnn train reviews.csv --out my-model --tensorboard logs
      dcnn train 'shards/*.parquet' --dev dev.parquet --out my-model
      dcnn train shards --out my-model --stream --set text.max_size=50000
      torchrun --nproc-per-node 2 -m dcnn train shards --out my-model
    """
    log_from_first_only()
    console = cli.make_console(stderr=True, quiet=not is_first())
    resume = resume or is_restarted()
    checkpoint = Path(f"{out if out.name else out.resolve()}.checkpoint")
    replaces = overwrite or checkpoint.exists()  # a resumed run was checked when it started
    if resume and not replaces and model_folder.is_model_folder(out):
        console.print(f"{out} is finished already; there is nothing to resume.")
        return
    with first_reports():
        if checkpoint.exists() and not (resume or overwrite):
            raise UserError(
                f"{checkpoint} holds an unfinished run; "
                "pass --resume to continue it, or --overwrite to start again"
            )
        model_folder.check_destination(out, replaces)
        log_folder = _log_folder(tensorboard, out)
        columns = TableOptions(
            text_column,
            label_column,
            weight_column,
            encoding,
            not no_header,
            labels_separator,
            cli.split_names("--label-columns", label_columns),
        )
        run_config = cli.read_config(config, settings, epochs=epochs, seed=seed)
        stream = is_large(data) if stream is None else stream
    if overwrite and is_launched() and is_first() and not is_restarted():
        checkpoint.unlink(missing_ok=True)  # otherwise a restart would continue the old run
    with report_interrupt(checkpoint, resume, stream):
        with joined_workers(device) as workers:
            train_set: LabelledTexts | Corpus
            dev_set: LabelledTexts | None
            if stream:
                train_set, dev_set, test_set = read_corpus(
                    console, data, dev, test, columns, run_config, workers
                )
            else:
                with first_reads_first(workers):
                    train_set, dev_set, test_set = read_examples(
                        data, dev, test, columns, multi_label=True
                    )
                    if dev_set is None:
                        share, seed = run_config.training.dev_fraction, run_config.training.seed
                        train_set, dev_set = hold_out(train_set, share, seed)
                    cli.print_sizes(console, train_set, len(dev_set))
            try:
                from dcnn.training.fit import RunOptions, fit
            except ImportError:
                raise MissingExtraError("Training", "train") from None
            patient = workers is not None
            with _callbacks(console, out, log_folder, run_config, patient) as callback:
                run_options = RunOptions(
                    device=device,
                    checkpoint_path=checkpoint,
                    resume=resume,
                    checkpoint_seconds=checkpoint_seconds,
                    callback=callback,
                    threads=threads,
                    workers=workers,
                )
                artifact, summary = fit(train_set, dev_set, run_config, run_options)
        if is_first():
            _print_summary(console, artifact, summary)
            metadata = artifact.metadata | {
                "data": data.name or data.resolve().name,
                "dcnn": __version__,
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            }
            if test_set is not None:
                metadata |= _test(console, artifact, test_set)
            model_folder.save(out, replace(artifact, metadata=metadata), replaces)
            checkpoint.unlink(missing_ok=True)
            console.print(
                f"The model is in {out}; try: dcnn predict {out} 'a text'", soft_wrap=True
            )


def _log_folder(tensorboard: Path | None, out: Path) -> Path | None:
    """The folder of this run's curves, checked before training: below DIR, named like the model."""
    if tensorboard is None:
        return None
    require_tensorboard()
    folder = tensorboard / out.resolve().name
    if folder.resolve().is_relative_to(out.resolve()):
        raise UserError(
            f"--tensorboard {tensorboard} would put the curves into {folder}, where --out {out} "
            "puts the model; name another folder for one of them"
        )
    existing = next(above for above in (folder, *folder.parents) if above.exists())
    if not existing.is_dir():
        raise UserError(f"--tensorboard {tensorboard}: {existing} is a file; name a folder")
    return folder


@contextmanager
def _callbacks(
    console: Console, out: Path, log_folder: Path | None, config: Config, patient: bool
) -> Iterator[Callback]:
    """The progress bar, the log and Ctrl-C while training runs; and how its errors end."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out.parent} cannot be created ({error.strerror})") from error
    log: AbstractContextManager[Callback] = nullcontext(Callback())
    if log_folder is not None and is_first():
        log = TensorBoardLog(log_folder, config)
    with TrainingBar(console) as bar, log as curves:
        callback = CallbackList(bar, curves)
        with cli.stop_on_signal(callback, patient=patient):
            try:
                yield callback
            except TrainingStoppedError as stopped:
                raise TrainingStoppedError(
                    f"{stopped}; the same command with --resume continues from there"
                ) from None
            except TrainingError as failed:
                raise TrainingError(
                    f"{failed}; start again with other settings and --overwrite"
                ) from None


def _print_summary(console: Console, artifact: Artifact, summary: "TrainingSummary") -> None:
    best = [record for record in summary.history if record.best][-1]
    console.print(
        f"Trained {summary.epochs} of {artifact.config.training.epochs} epochs in "
        f"{summary.seconds:.1f} s ({summary.sentences_per_second:,.0f} sentences/s on "
        f"{artifact.metadata['device']}), and kept the best: epoch {best.epoch}, {best.measure}",
        soft_wrap=True,
    )
    if (found := artifact.metadata.get("calibration")) is not None:
        console.print(
            f"Calibrated on dev: temperature {found['temperature']:.2f}, calibration error "
            f"{100 * found['error_before']:.2f} % before, {100 * found['error_after']:.2f} % after",
            soft_wrap=True,
        )


def _test(console: Console, artifact: Artifact, test: LabelledTexts) -> dict[str, float]:
    """Print the scores on ``test``; returns those that the model folder records."""
    predictor = Predictor(artifact)
    scores = evaluate_model(predictor, test, predictor.probabilities(test.texts))
    console.print(f"Test ({test.source}):")
    print_evaluation(console, scores, artifact.thresholds)
    if isinstance(scores, Evaluation):
        return {"test_accuracy": scores.accuracy}
    return {"test_micro_f1": scores.micro_f1, "test_macro_f1": scores.macro_f1}


@contextmanager
def report_interrupt(checkpoint: Path, resume: bool, stream: bool) -> Iterator[None]:
    """Answer a Ctrl-C that ends the command at once, while it reads or saves, with what is kept.

    Args:
        checkpoint: where the run saves its state.
        resume: whether a checkpoint that is there already belongs to this run.
        stream: whether the command encodes files on disk before it trains.

    Raises:
        TrainingStoppedError: the command was stopped; of several processes, in the first.
    """
    at_start = _modified(checkpoint)
    try:
        yield
    except KeyboardInterrupt:
        if not is_first():
            sys.exit(TrainingStoppedError.exit_code)  # the first process reports it
        saved = _modified(checkpoint)
        if saved is not None and (resume or saved != at_start):
            raise TrainingStoppedError(
                f"stopped; {checkpoint} holds the run as it was last saved, and the same command "
                "with --resume continues from there"
            ) from None
        kept = "nothing was written"
        if stream:
            kept = (
                f"no model was written, but fully encoded files are kept in {cache_folder()}, and "
                "the same command continues with the others"
            )
        raise TrainingStoppedError(f"stopped before training began; {kept}") from None


def _modified(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def is_large(data: Path) -> bool:
    """Whether the files of ``data`` are too large for memory."""
    return sum(map(_text_bytes, find_shards(data, log=False))) > LARGEST_IN_MEMORY


def _text_bytes(path: Path) -> int:
    if not path.is_file():
        return 0  # the reader reports it
    suffix = path.suffix.lower()
    factor = _COMPRESSED if suffix in COMPRESSIONS else _COLUMNAR if suffix in ARROW else 1
    return path.stat().st_size * factor


def read_corpus(
    console: Console,
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: TableOptions,
    config: Config,
    workers: "Workers | None" = None,
) -> tuple[Corpus, LabelledTexts | None, LabelledTexts | None]:
    """The training set encoded on disk, dev (``None`` if held out of it) and test.

    Of several processes each encodes its own files. Hosts may share a cache or not: what a host
    is missing afterwards is encoded by the first process on it.
    """
    with first_reads_first(workers):
        others = dev_set, test_set = [read_evaluation_set(path, columns) for path in (dev, test)]
    paths, store = find_shards(data), Store(cache_folder())
    with first_reads_first(workers):
        encoder = FileEncoder.for_files(paths, columns, config.text, store)
        for examples in filter(None, others):  # before encoding, which may take hours
            check_form(examples, multi_label=False, of=str(data))

    def prepare() -> Corpus:
        files = _encode(console, paths, encoder)
        n_examples = sum(block.rows for file in files for block in file.blocks)
        n_files = "1 file" if len(files) == 1 else f"{len(files):,} files"
        console.print(
            f"{n_examples:,} examples of {n_files} are encoded in {store.cache}", soft_wrap=True
        )
        counts = count_labels(files, str(data), splits=dev is None)
        classes = sorted_labels(counts)
        for examples in filter(None, others):
            examples.with_classes(classes)
        split = config.training if dev is None else None
        return prepare_corpus(files, encoder.tokenizer, config.text, split, classes, store)

    if workers is None:
        corpus = prepare()
    else:
        if own := paths[workers.rank :: workers.size]:
            _encode(console, own, encoder)
        workers.wait()
        prepared = prepare() if workers.local_rank == 0 else None
        key = workers.text_of_first("" if prepared is None else prepared.key)
        workers.wait()  # now the corpus is on every host
        corpus = prepared or Corpus.load(store, key)
    cli.print_sizes(console, corpus, len(corpus.held_out if dev_set is None else dev_set))
    return corpus, dev_set and dev_set.with_classes(corpus.classes), test_set


def _encode(console: Console, paths: Sequence[Path], encoder: FileEncoder) -> list[EncodedFile]:
    processes = max(1, _cores() // processes_here())
    with cli.count_progress(
        console, f"encoding {len(paths):,} files: {{count}} examples"
    ) as report:
        return encode_files(paths, encoder, processes, report)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_launched() -> bool:
    """Whether this process trains together with others."""
    # Other launchers set RANK too, with another meaning.
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this is the process that prints and writes; a process alone is."""
    return not is_launched() or os.environ["RANK"] == "0"


def is_restarted() -> bool:
    """Whether this process replaces one that was killed."""
    return is_launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def processes_here() -> int:
    """How many processes of this run are on this host."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if is_launched() else 1


def log_from_first_only() -> None:
    """Log progress in the first process only; every process logs its warnings."""
    if not is_first():
        logging.getLogger("dcnn").setLevel(logging.WARNING)


@contextmanager
def first_reports(*kinds: type[DcnnError]) -> Iterator[None]:
    """Let one process per host report an error that all of them have.

    The others wait a moment before they raise theirs: if the first process has the same error, it
    ends, and ``torchrun`` ends them before they print it. A process whose error is its own is
    still there then, and reports it.

    Args:
        kinds: errors that every process has; by default any ``UserError``.
    """
    try:
        yield
    except DcnnError as error:
        is_shared = isinstance(error, kinds or UserError)
        if is_shared and is_launched() and os.environ["LOCAL_RANK"] != "0":
            time.sleep(WAIT_FOR_FIRST)
        raise


@contextmanager
def first_reads_first(workers: "Workers | None") -> Iterator[None]:
    """The first process reads before the others, which print nothing if it fails."""
    if workers is None:
        yield
        return
    with first_reports(WorkerLostError), workers.first_before_others():
        yield


@contextmanager
def joined_workers(device: str) -> Iterator["Workers | None"]:
    """The processes of this run; ``None`` where this process trains alone."""
    if not is_launched():
        yield None
        return
    with ExitStack() as stack:
        with first_reports():
            require_distributed()
            from dcnn.training.distributed import joined

            workers = stack.enter_context(joined(device))
        try:
            with first_reports(ConfigError, DataError):
                yield workers
        except (TrainingError, TrainingStoppedError) as error:
            if workers.is_first:
                raise
            sys.exit(error.exit_code)  # the first process reports it


def require_distributed() -> None:
    """Check for ``torch.distributed`` before anything that needs it is imported.

    Raises:
        UserError: this torch was built without it.
        MissingExtraError: torch is not installed.
    """
    try:
        from torch import distributed
    except ImportError:
        raise MissingExtraError("Training", "train") from None
    if not distributed.is_available():
        raise UserError(
            "torchrun needs a torch that was built with torch.distributed, and this one was not; "
            "install one that was (pip install torch), or train in one process, without torchrun"
        )
