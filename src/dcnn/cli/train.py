"""``dcnn train``: read and check everything first, then train, evaluate once, and save.

Whatever can be wrong is reported as early as it can be known: options and missing packages before
anything is read. Modules are imported when they are called, so that the help comes at once, and
torch only where the native backend cannot train alone. A corpus that is
too large for memory is encoded on disk first. That is decided by the size of the files alone, so
that a command does the same on every machine; ``--stream`` and ``--no-stream`` override it. Whether
``torchrun`` started this process as one of several is detected without torch.
"""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from dcnn import errors
from dcnn.cli import console as cli
from dcnn.errors import DcnnError, TrainingError, TrainingStoppedError, UserError, needs_extra

if TYPE_CHECKING:
    from rich.console import Console

    from dcnn.artifact import Artifact, Example
    from dcnn.config import Config
    from dcnn.data.encode import FileEncoder
    from dcnn.data.labels import LabelledTexts
    from dcnn.data.readers import TableOptions
    from dcnn.data.store import Corpus, EncodedFile
    from dcnn.training import callbacks, distributed, trainer
    from dcnn.training.warm_start import Growth

# More text than this is not held in memory: six million tweets, which would take four gigabytes.
LARGEST_IN_MEMORY = 512 << 20
# About how many times larger the text of a file is than the file.
_COMPRESSED, _COLUMNAR = 3, 2
# Seconds: once a process has ended, torchrun ends the others well within this time.
WAIT_FOR_FIRST = 3.0


def only_run(command: Callable[..., None]) -> Callable[..., None]:
    """``command``, refused while another one trains into the same ``out``."""

    @wraps(command)
    def run(data: Path, out: Path, **options: Any) -> None:
        from dcnn.files import make_folder, only_writer

        place = out.resolve()
        if not place.name or not is_first():  # the root folder is refused for its own reason
            command(data, out, **options)
            return
        missing = [folder for folder in place.parents if not folder.exists()]
        make_folder(place.parent)
        try:
            with only_writer(place.with_name(f"{place.name}.run"), str(out)):
                command(data, out, **options)
        finally:
            for folder in missing:  # nothing is left of a command that failed
                with suppress(OSError):
                    folder.rmdir()

    return run


@cli.grouped
@only_run
def train(
    data: cli.TrainFile,
    out: cli.NewModelFolder,
    reading: cli.LabelTable,
    dev: Path | None = None,
    test: Path | None = None,
    weight_column: str | None = None,
    config: Path | None = None,
    settings: cli.Settings = None,
    epochs: int | None = None,
    seed: int | None = None,
    device: cli.Device = "auto",
    resume: cli.Resume = False,
    overwrite: cli.Overwrite = False,
    checkpoint_seconds: Annotated[float, Option(min=0)] = 15.0,
    threads: cli.Threads = 1,
    tensorboard: Annotated[Path | None, Option(metavar="DIR")] = None,
    stream: Annotated[bool | None, Option("--stream/--no-stream", show_default=False)] = None,
    target_precision: cli.Probability = None,
    out_of_scope: cli.OutOfScope = None,
    out_of_scope_file: cli.OutOfScopeFile = None,
    start_from: Annotated[Path | None, Option(metavar="MODEL")] = None,
    replay: Annotated[Path | None, Option(metavar="FILE")] = None,
    keep_examples: Annotated[int, Option(metavar="N", min=0)] = 0,
) -> None:
    """Train a classifier on labelled texts.

    TRAIN has a column of texts and a column of labels. Text files may be compressed (.gz, .bz2,
    .xz, .zst, .zip); .parquet, .arrow and .feather need the extra `data`. Multi-label data has a
    list of labels per row (.jsonl, .parquet), or is described by --labels-separator or
    --label-columns. A part is held out as the dev set, for calibration and scores; if examples are
    few, the model is trained on all of them, and cross-validation replaces the dev set.

    With --target-precision, the abstention threshold is chosen on the dev set; `dcnn predict
    --abstain`, the server and the page use it.

    With --start-from, training continues from a model. TRAIN may have new words and new labels.
    --replay gives old examples, so that the model does not forget them; by default those that
    --keep-examples stored in the model folder. The scores of both models on new and old examples
    are printed.
    """
    from dcnn.artifact import is_model_folder, save

    if not is_first():
        logging.getLogger("dcnn").setLevel(logging.WARNING)  # the first process logs the progress
    console = cli.make_console(stderr=True, quiet=not is_first())
    resume = resume or is_restarted()
    if resume and not overwrite and not checkpoint_of(out).exists() and is_model_folder(out):
        console.print(f"{out} is finished already; there is nothing to resume.")
        return
    with first_reports(UserError):
        checkpoint, replaces = run_of(out, resume, overwrite)
        log_folder = _log_folder(tensorboard, out)
        columns = reading(weight_column=weight_column)
        start = None if start_from is None else read_start(start_from, config, stream)
        if start is not None:
            from dcnn.training import warm_start

            run_config = warm_start.config_of(start, settings or (), epochs=epochs, seed=seed)
            stream = False
        elif replay is not None:
            raise UserError(
                "--replay has examples that a model was trained on; add --start-from MODEL"
            )
        else:
            run_config = cli.read_config(config, settings, epochs=epochs, seed=seed)
        from dcnn.training.fit import RunOptions, check_backend, fit

        device = check_backend(run_config, device, alone=not is_launched())
        stream = is_large(data) if stream is None else stream
        outside = cli.read_out_of_scope(out_of_scope_file, columns)
    if overwrite and is_launched() and is_first() and not is_restarted():
        checkpoint.unlink(missing_ok=True)  # otherwise a restart would continue the old run
    with report_interrupt(checkpoint, resume, stream):
        with joined_workers(device) as workers:
            train_set: LabelledTexts | Corpus
            if stream:
                train_set, dev_set, test_set = read_corpus(
                    console, data, dev, test, columns, run_config, workers
                )
            else:
                with first_reads_first(workers):
                    if start is not None:
                        growth, test_set = read_growth(
                            start, data, dev, test, replay, columns, run_config
                        )
                        train_set, dev_set = growth.train, growth.dev
                    else:
                        train_set, dev_set, test_set = read_new(
                            data, dev, test, columns, run_config
                        )
                    cli.print_sizes(console, train_set, 0 if dev_set is None else len(dev_set))
            if target_precision is not None or out_of_scope is not None or outside:
                check_abstention(train_set, out_of_scope)
            examples = kept_examples(train_set, dev_set, keep_examples, run_config)
            with training_callbacks(
                console, log_folder, run_config, patient=workers is not None
            ) as callback:
                run_options = RunOptions(
                    device=device,
                    checkpoint_path=checkpoint,
                    resume=resume,
                    checkpoint_seconds=checkpoint_seconds,
                    callback=callback,
                    threads=threads,
                    workers=workers,
                    target_precision=target_precision,
                    out_of_scope=out_of_scope,
                    out_of_scope_texts=outside,
                    start_from=start,
                )
                artifact, summary = fit(train_set, dev_set, run_config, run_options)
        if is_first():
            print_summary(console, artifact, summary)
            metadata = artifact.metadata | cli.run_metadata(data, dev, test)
            if start is not None:
                scores = warm_start.compare(growth, artifact)
                metadata["start_from"] = {
                    "model": start_from.resolve().name if start_from else "",
                    "replay": growth.replay if replay is None else replay.name,
                    "scores": scores,
                }
                print_growth(console, scores, artifact.multi_label)
            metadata["label_counts"] = count_labels(train_set)
            if test_set is not None:
                metadata |= _test(console, artifact, test_set)
            save(out, replace(artifact, metadata=metadata, examples=examples), replaces)
            checkpoint.unlink(missing_ok=True)
            console.print(f"The model is in {out}; try: dcnn predict {out} 'a text'")
            if target_precision is not None:
                report_threshold(console, artifact, target_precision)


def read_start(model: Path, config: Path | None, stream: bool | None) -> "Artifact":
    """The model to continue, of --start-from."""
    from dcnn.artifact import load

    if config is not None:
        raise UserError(
            f"--config {config} has tokens and network, which are those of --start-from {model}; "
            "leave it out, and give settings of the training with --set training.KEY=VALUE"
        )
    if stream:
        raise UserError("--start-from trains in memory; leave out --stream")
    start = load(model)
    if "threshold" in start.metadata.get("abstention", {}):
        logging.getLogger("dcnn").info(
            "the abstention threshold of %s is not kept; choose one with --target-precision", model
        )
    return start


def read_new(
    data: Path, dev: Path | None, test: Path | None, columns: "TableOptions", config: "Config"
) -> "tuple[LabelledTexts, LabelledTexts | None, LabelledTexts | None]":
    """Training, dev and test examples of a new model; dev is held out if no file is given."""
    from dcnn.data.readers import read_examples
    from dcnn.data.split import split_dev

    train, dev_set, test_set = read_examples(data, dev, test, columns, multi_label=True)
    if dev_set is None:
        train, dev_set = split_dev(train, config.training)
    return train, dev_set, test_set


def read_growth(
    start: "Artifact",
    data: Path,
    dev: Path | None,
    test: Path | None,
    replay: Path | None,
    columns: "TableOptions",
    config: "Config",
) -> "tuple[Growth, LabelledTexts | None]":
    """New and old examples for continuing the model ``start``, and the test examples."""
    from dcnn.data.readers import read_examples, read_labelled
    from dcnn.training import warm_start

    more, dev_set, test_set = read_examples(data, dev, test, columns, multi_label=True, new=False)
    old = None if replay is None else read_labelled(replay, columns)
    growth = warm_start.join(start, more, dev_set, old, config.training)
    if test_set is not None:
        test_set = warm_start.numbered(test_set, start, growth.train.classes)
    return growth, test_set


def print_growth(console: "Console", scores: "Sequence[dict[str, Any]]", multi_label: bool) -> None:
    """Print how a model and the one it continues do on new and on old examples."""
    measure = "micro F1" if multi_label else "accuracy"
    for score in scores:
        before, after = (f"{100 * score[when]:.2f} %" for when in ("before", "after"))
        console.print(
            f"On {score['number']:,} {score['examples']} examples that were held out: {measure} "
            f"{before} before, {after} after"
        )
    if all(score["examples"] != "old" for score in scores):
        console.print("Forgetting was not measured: give old examples with --replay FILE")


def kept_examples(
    train: "LabelledTexts | Corpus", dev: "LabelledTexts | None", count: int, config: "Config"
) -> "tuple[Example, ...]":
    """Texts to keep in the model folder: of dev, or of the training set where there is none."""
    from dcnn.data.labels import LabelledTexts
    from dcnn.training.warm_start import choose_examples

    texts = train if dev is None else dev
    if isinstance(texts, LabelledTexts):
        return choose_examples(texts, count, config.training.seed)
    if count:
        raise UserError(
            f"--keep-examples {count} takes texts of dev, and a corpus on disk holds none of its "
            "own; give --dev, or pass --no-stream"
        )
    return ()


def count_labels(train: "LabelledTexts | Corpus") -> dict[str, int]:
    """How many training texts have each label; of probabilities the most probable one counts."""
    from dcnn.data.labels import LabelledTexts

    if not isinstance(train, LabelledTexts):
        places = range(len(train.blocks))
        found = Counter(number for place in places for number in train.targets(place).tolist())
        return {str(label): found[number] for number, label in enumerate(train.classes)}
    lists = (label if isinstance(label, tuple) else (label,) for label in train.labels)
    named = Counter(chain.from_iterable(lists))
    return {str(label): named[label] for label in train.classes}


def check_abstention(train: "LabelledTexts | Corpus", out_of_scope: str | None) -> None:
    """Raise DataError before training where a threshold of abstention makes no sense."""
    from dcnn.data.columns import did_you_mean, shown, shown_names

    if getattr(train, "multi_label", False):
        raise errors.DataError(
            "--target-precision and --out-of-scope are for one label per text; in multi-label data "
            "each label has a threshold of its own, and a text may have none"
        )
    names = [str(label) for label in train.classes]
    if out_of_scope is not None and out_of_scope not in names:
        raise errors.DataError(
            f"--out-of-scope {shown(out_of_scope)} is no label of the training set, which has "
            f"{shown_names(names)}; name one of them, or give texts with --out-of-scope-file"
            f"{did_you_mean(out_of_scope, names)}"
        )


def report_threshold(console: "Console", artifact: "Artifact", target: float) -> None:
    """Print the abstention threshold; raises DataError if the model was saved without one."""
    from dcnn.metrics import stored_curve

    if (record := artifact.metadata.get("abstention")) is None:
        raise errors.DataError(
            "--target-precision needs examples that are not trained on, and no label has two; give "
            "--dev; the model is saved without a threshold"
        )
    if "threshold" not in record:
        error = stored_curve(record).unreachable(target, record["data"])
        raise errors.DataError(f"{error}; the model is saved without a threshold")
    console.print(cli.describe_threshold(record))


def checkpoint_of(out: Path) -> Path:
    """Where the unfinished run of a model folder is kept."""
    return Path(f"{out if out.name else out.resolve()}.checkpoint")


def run_of(out: Path, resume: bool, overwrite: bool) -> tuple[Path, bool]:
    """The checkpoint of a run, and whether it replaces a model folder; both are checked."""
    from dcnn.artifact import check_destination

    checkpoint = checkpoint_of(out)
    if checkpoint.exists() and not (resume or overwrite):
        raise UserError(
            f"{checkpoint} holds an unfinished run; "
            "pass --resume to continue it, or --overwrite to start again"
        )
    replaces = overwrite or checkpoint.exists()  # a resumed run was checked when it started
    check_destination(out, replaces)
    return checkpoint, replaces


def _log_folder(tensorboard: Path | None, out: Path) -> Path | None:
    """The folder of this run's curves, checked before training: below DIR, named like the model."""
    from dcnn.training.callbacks import require_tensorboard

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
def training_callbacks(
    console: "Console", log_folder: Path | None, config: "Config", *, patient: bool
) -> "Iterator[callbacks.Callback]":
    """The progress bar, the log and Ctrl-C during training; adds a remedy to its errors."""
    from dcnn.training.callbacks import Callback, CallbackList, TensorBoardLog, TrainingBar

    log: AbstractContextManager[Callback] = nullcontext(Callback())
    if log_folder is not None and is_first():
        log = TensorBoardLog(log_folder, config)
    with TrainingBar(console) as bar, log as curves:
        callback = CallbackList(bar, curves)
        with cli.stop_on_signal(callback, patient=patient):
            try:
                yield callback
            except TrainingStoppedError as stopped:
                raise TrainingStoppedError(f"{stopped}; {cli.CONTINUE}") from None


def print_summary(
    console: "Console", artifact: "Artifact", summary: "trainer.TrainingSummary"
) -> None:
    """Print how a training went."""
    records, metadata = [record for record in summary.history if record.kept], artifact.metadata
    kept, dev = "", "dev"
    if records:
        scores = summary.dev_accuracy or 0.0, summary.dev_micro_f1  # of the weights as stored
        record = replace(records[-1], dev_accuracy=scores[0], dev_micro_f1=scores[1])
        which = f"best: epoch {record.epoch}," if record.best else "last:"
        kept = f", and kept the {which} {record.measure}"
    elif (folds := metadata.get("cross_validation")) is not None:
        score, dev = summary.dev_micro_f1, "the folds"
        name = "accuracy" if score is None else "micro F1"
        score = summary.dev_accuracy if score is None else score
        percent, scored = f"{100 * (score or 0):.2f} %", f"{folds['examples']:,}"
        kept = f" on all examples; {name} {percent} by cross-validation, on {scored} of them"
    console.print(
        f"Trained {summary.epochs} of {artifact.config.training.epochs} epochs in "
        f"{summary.seconds:.1f} s ({summary.sentences_per_second:,.0f} sentences/s on "
        f"{metadata['device']}){kept}"
    )
    if (found := metadata.get("calibration")) is not None:
        console.print(
            f"Calibrated on {dev}: temperature {found['temperature']:.2f}, calibration error "
            f"{100 * found['error_before']:.2f} % before, {100 * found['error_after']:.2f} % after"
        )


def _test(console: "Console", artifact: "Artifact", test: "LabelledTexts") -> dict[str, float]:
    """Print the scores on ``test``; returns those that the model folder records."""
    from dcnn.cli.evaluate import evaluate_model, print_abstention, print_evaluation
    from dcnn.metrics import Evaluation, abstain
    from dcnn.predictor import Predictor

    predictor = Predictor(artifact)
    probabilities = predictor.probabilities(test.texts)
    scores = evaluate_model(predictor, test, probabilities)
    console.print(f"Test ({test.source}):")
    print_evaluation(console, scores, artifact.thresholds)
    if "threshold" in (record := predictor.abstention):
        below, no_answer = record["threshold"], predictor.out_of_scope
        targets = test.with_classes([str(label) for label in artifact.classes]).targets
        print_abstention(console, abstain(targets, probabilities, below, no_answer))
    if isinstance(scores, Evaluation):
        return {"test_accuracy": scores.accuracy}
    return {"test_micro_f1": scores.micro_f1, "test_macro_f1": scores.macro_f1}


@contextmanager
def report_interrupt(checkpoint: Path, resume: bool, stream: bool) -> Iterator[None]:
    """Report what is kept if Ctrl-C ends the command at once, while it reads or saves.

    A checkpoint that was there before belongs to this run only if it is resumed.
    """
    at_start = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    try:
        yield
    except KeyboardInterrupt:
        if not is_first():
            sys.exit(TrainingStoppedError.exit_code)  # the first process reports it
        if checkpoint.exists() and (resume or checkpoint.stat().st_mtime_ns != at_start):
            raise TrainingStoppedError(
                f"stopped; {checkpoint} holds the run as it was last saved, and {cli.CONTINUE}"
            ) from None
        from dcnn.data.corpora.registry import cache_folder

        kept = "nothing was written"
        if stream:
            kept = f"no model was written, but fully encoded files are kept in {cache_folder()}"
            kept = f"{kept}, and the same command continues with the others"
        raise TrainingStoppedError(f"stopped before training began; {kept}") from None


def is_large(data: Path) -> bool:
    """Whether the files of ``data`` are too large for memory."""
    from dcnn.data.arrow import ARROW
    from dcnn.data.readers import find_shards
    from dcnn.files import COMPRESSIONS

    n_bytes = 0
    for path in find_shards(data, log=False):
        suffix = path.suffix.lower()
        factor = _COMPRESSED if suffix in COMPRESSIONS else 1
        factor = _COLUMNAR if suffix in ARROW else factor
        n_bytes += factor * path.stat().st_size if path.is_file() else 0  # the reader reports it
    return n_bytes > LARGEST_IN_MEMORY


def read_corpus(
    console: "Console",
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: "TableOptions",
    config: "Config",
    workers: "distributed.Workers | None" = None,
) -> "tuple[Corpus, LabelledTexts | None, LabelledTexts | None]":
    """The training set encoded on disk, dev (``None`` if held out of it) and test.

    With several processes, each encodes its share of the files. Hosts may share a cache or not:
    files that a host still lacks are encoded by its first process.
    """
    from dcnn.data import encode, labels, readers
    from dcnn.data.corpora.registry import cache_folder
    from dcnn.data.store import Corpus, Store

    with first_reads_first(workers):
        sets = [readers.read_evaluation_set(path, columns) for path in (dev, test)]
    dev_set, test_set = sets
    paths, store = readers.find_shards(data), Store(cache_folder())
    with first_reads_first(workers):
        encoder = encode.FileEncoder.for_files(paths, columns, config.text, store)
        for examples in filter(None, sets):  # before encoding, which may take hours
            labels.check_form(examples, multi_label=False, of=str(data))

    def prepare() -> Corpus:
        files = _encode(console, paths, encoder)
        n_examples = sum(block.rows for file in files for block in file.blocks)
        n_files = "1 file" if len(files) == 1 else f"{len(files):,} files"
        console.print(f"{n_examples:,} examples of {n_files} are encoded in {store.cache}")
        classes = labels.sorted_labels(encode.count_labels(files, str(data), splits=dev is None))
        for examples in filter(None, sets):
            examples.with_classes(classes)
        split = config.training if dev is None and config.training.dev_fraction else None
        return encode.prepare_corpus(files, encoder.tokenizer, config.text, split, classes, store)

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


def _encode(
    console: "Console", paths: Sequence[Path], encoder: "FileEncoder"
) -> "list[EncodedFile]":
    from dcnn.data.encode import encode_files

    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    processes = max(1, cores // _of_torchrun("LOCAL_WORLD_SIZE", alone=1))
    description = f"encoding {len(paths):,} files: {{count}} examples"
    with cli.count_progress(console, description) as report:
        return encode_files(paths, encoder, processes, report)


def is_launched() -> bool:
    """Whether this process trains together with others."""
    return "TORCHELASTIC_RUN_ID" in os.environ  # other launchers set RANK too, in another meaning


def _of_torchrun(variable: str, alone: int = 0) -> int:
    return int(os.environ.get(variable, alone)) if is_launched() else alone


def is_first() -> bool:
    """Whether this is the process that prints and writes; a process alone is."""
    return _of_torchrun("RANK") == 0


def is_restarted() -> bool:
    """Whether this process replaces one that was killed."""
    return _of_torchrun("TORCHELASTIC_RESTART_COUNT") > 0


@contextmanager
def first_reports(*kinds: type[DcnnError]) -> Iterator[None]:
    """Let one process per host report an error of ``kinds`` that all of them have.

    The others wait a moment before they raise theirs: if the first process has the same error, it
    ends, and ``torchrun`` ends them before they print it. A process whose error is its own is
    still there then, and reports it.
    """
    try:
        yield
    except kinds:
        if _of_torchrun("LOCAL_RANK"):
            time.sleep(WAIT_FOR_FIRST)
        raise


@contextmanager
def first_reads_first(workers: "distributed.Workers | None") -> Iterator[None]:
    """The first process reads before the others, which print nothing if it fails."""
    if workers is None:
        yield
        return
    with first_reports(errors.WorkerLostError), workers.first_before_others():
        yield


@contextmanager
def joined_workers(device: str) -> "Iterator[distributed.Workers | None]":
    """The processes of this run; ``None`` where this process trains alone."""
    if not is_launched():
        yield None
        return
    with ExitStack() as stack:
        with first_reports(UserError):
            require_distributed()
            from dcnn.training.distributed import joined

            workers = stack.enter_context(joined(device))
        try:
            with first_reports(errors.ConfigError, errors.DataError):
                yield workers
        except (TrainingError, TrainingStoppedError) as error:
            if workers.rank == 0:
                raise
            sys.exit(error.exit_code)  # the first process reports it


def require_distributed() -> None:
    """Check for ``torch.distributed`` before anything that needs it is imported."""
    with needs_extra("Training in several processes", "train"):
        from torch import distributed
    if not distributed.is_available():
        raise UserError(
            "torchrun needs a torch that was built with torch.distributed, and this one was not; "
            "install one that was (pip install torch), or train in one process, without torchrun"
        )
