"""``dcnn train``: read and check everything first, then train, score once, and save.

Torch is imported when all input has been found good: a typo is answered at once.
"""

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rich.console import Console

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.commands.examples import read_examples
from dcnn.commands.given_settings import given_config
from dcnn.commands.stopping import say_what_is_kept, stop_on_signal
from dcnn.commands.streaming import KEPT_FILES, is_large, read_corpus, read_others
from dcnn.commands.torchrun import (
    first_reads_first,
    first_says_what_is_wrong,
    hush_all_but_first,
    is_first,
    is_launched,
    is_restarted,
    require_distributed,
)
from dcnn.config import Config
from dcnn.data.corpora.registry import cache_folder
from dcnn.data.labels import LabelledTexts
from dcnn.data.readers import TableOptions
from dcnn.data.split import hold_out
from dcnn.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    StorageError,
    TrainingError,
    TrainingStoppedError,
    UserError,
)
from dcnn.metrics import evaluate, evaluate_labels
from dcnn.predictor import Predictor
from dcnn.terminal import TrainingBar, make_console, print_evaluation, print_label_evaluation
from dcnn.training.callbacks import Callback, Listeners, TensorBoardLog, require_tensorboard

if TYPE_CHECKING:
    from dcnn.training.callbacks import EvaluationRecord
    from dcnn.training.distributed import Workers
    from dcnn.training.fit import RunOptions
    from dcnn.training.trainer import TrainingSummary


@dataclass(frozen=True)
class TrainOptions:
    """The options of the command; see its help."""

    data: Path
    out: Path
    dev: Path | None
    test: Path | None
    columns: TableOptions
    config: Path | None
    settings: tuple[str, ...]
    epochs: int | None
    seed: int | None
    device: str
    resume: bool
    overwrite: bool
    checkpoint_seconds: float
    threads: int
    tensorboard: Path | None = None
    stream: bool | None = None

    @property
    def checkpoint(self) -> Path:
        """The file beside the model folder that holds an unfinished run."""
        return Path(f"{self.out if self.out.name else self.out.resolve()}.checkpoint")

    @property
    def log_folder(self) -> Path | None:
        """Where this run's curves go: below the folder that was named, under the model's name."""
        return self.tensorboard and self.tensorboard / self.out.resolve().name


def run_train(options: TrainOptions) -> None:
    """Train, and leave the model folder at ``options.out``.

    Under ``torchrun`` every process does so, and the first alone prints and writes.
    """
    hush_all_but_first()
    console = make_console(stderr=True, quiet=not is_first())
    if is_restarted():
        options = replace(options, resume=True)
    replaces = options.overwrite or options.checkpoint.exists()  # a resumed run began as it did
    if options.resume and not replaces and model_folder.is_model_folder(options.out):
        console.print(f"{options.out} is finished already; there is nothing to resume.")
        return
    with first_says_what_is_wrong():
        config = _checked(options, replaces)
    if options.overwrite and is_launched() and is_first() and not is_restarted():
        options.checkpoint.unlink(missing_ok=True)  # else a restart would go on with the old run
    stream = is_large(options.data) if options.stream is None else options.stream
    learn = _learn_from_disk if stream else _learn_in_memory
    kept = KEPT_FILES.format(cache_folder()) if stream else "nothing was written"
    with say_what_is_kept(options.checkpoint, resumes=options.resume, before_training=kept):
        if is_launched():
            artifact, summary, test = _learn_together(learn, console, options, config)
        else:
            artifact, summary, test = learn(console, options, config, None)
        if is_first():
            _finish(console, options, config, artifact, summary, test, replaces)


def _checked(options: TrainOptions, replaces: bool) -> Config:
    """The settings, once all is well that needs no data to be found wrong."""
    if options.checkpoint.exists() and not (options.resume or options.overwrite):
        raise UserError(
            f"{options.checkpoint} holds an unfinished run; "
            "pass --resume to go on with it, or --overwrite to start again"
        )
    model_folder.check_destination(options.out, replaces)
    if options.log_folder is not None:
        require_tensorboard()
        _check_log_folder(options.log_folder, options)
    return _config(options)


def _check_log_folder(folder: Path, options: TrainOptions) -> None:
    """Find before the training that its logs would take the model's place, or have none."""
    if folder.resolve().is_relative_to(options.out.resolve()):
        raise UserError(
            f"--tensorboard {options.tensorboard} would put the curves into {folder}, where --out "
            f"{options.out} puts the model; name another folder for one of them"
        )
    for above in (folder, *folder.parents):
        if above.exists():
            if not above.is_dir():
                raise UserError(
                    f"--tensorboard {options.tensorboard}: {above} is a file; name a folder"
                )
            return


def _finish(
    console: Console,
    options: TrainOptions,
    config: Config,
    artifact: Artifact,
    summary: "TrainingSummary",
    test: LabelledTexts | None,
    replaces: bool,
) -> None:
    """Say how it went, score, and save."""
    console.print(
        f"Trained {summary.epochs} of {config.training.epochs} epochs in {summary.seconds:.1f} s "
        f"({summary.sentences_per_second:,.0f} sentences/s on {artifact.metadata['device']}), "
        f"and kept the best: epoch {(best := _best(summary)).epoch}, {best.measure}",
        soft_wrap=True,
    )
    _tell_calibration(console, artifact)
    metadata = artifact.metadata | {
        "data": options.data.name or options.data.resolve().name,
        "dcnn": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if test is not None:
        metadata |= _score(console, artifact, test)
    model_folder.save(options.out, replace(artifact, metadata=metadata), replaces)
    options.checkpoint.unlink(missing_ok=True)
    hint = f"try: dcnn predict {options.out} 'a text'"
    console.print(f"The model is in {options.out}; {hint}", soft_wrap=True)


def _tell_calibration(console: Console, artifact: Artifact) -> None:
    if (found := artifact.metadata.get("calibration")) is not None:
        console.print(
            f"Calibrated on dev: temperature {found['temperature']:.2f}, calibration error "
            f"{100 * found['error_before']:.2f} % before, {100 * found['error_after']:.2f} % after",
            soft_wrap=True,
        )


def _best(summary: "TrainingSummary") -> "EvaluationRecord":
    return [record for record in summary.history if record.best][-1]


_Learned = tuple[Artifact, "TrainingSummary", LabelledTexts | None]


_Learn = Callable[[Console, TrainOptions, Config, "Workers | None"], _Learned]


def _learn_together(
    learn: _Learn, console: Console, options: TrainOptions, config: Config
) -> _Learned:
    with ExitStack() as stack:
        with first_says_what_is_wrong():
            require_distributed()
            _import_fit()
            from dcnn.training.distributed import joined

            workers = stack.enter_context(joined(options.device))
        try:
            with first_says_what_is_wrong(ConfigError, DataError):
                return learn(console, options, config, workers)
        except (TrainingError, TrainingStoppedError) as error:
            if workers.is_first:
                raise
            sys.exit(error.exit_code)  # the first process says it of all


def _learn_in_memory(
    console: Console, options: TrainOptions, config: Config, workers: "Workers | None"
) -> _Learned:
    with first_reads_first(workers):
        train, dev, test = read_examples(
            options.data, options.dev, options.test, options.columns, multi_label=True
        )
    if dev is None:
        train, dev = hold_out(train, config.training.dev_fraction, config.training.seed)
    _say_sizes(console, len(train), len(dev), len(train.classes), train.multi_label)
    fit_module = _import_fit()
    with _training(console, options, config, workers) as run_options:
        artifact, summary = fit_module.fit(train, dev, config, run_options)
    return artifact, summary, test


def _learn_from_disk(
    console: Console, options: TrainOptions, config: Config, workers: "Workers | None"
) -> _Learned:
    with first_reads_first(workers):
        dev, test = read_others(options.dev, options.test, options.columns)
    corpus = read_corpus(
        console,
        options.data,
        (dev, test),
        options.columns,
        config,
        holds_out=dev is None,
        workers=workers,
    )
    held_out = len(corpus.held_out) if dev is None else len(dev.texts)
    _say_sizes(console, len(corpus), held_out, len(corpus.classes))
    fit_module = _import_fit()
    given = dev and dev.with_classes(corpus.classes)
    with _training(console, options, config, workers) as run_options:
        artifact, summary = fit_module.fit_corpus(corpus, given, config, run_options)
    return artifact, summary, test


def _say_sizes(
    console: Console, train: int, dev: int, classes: int, multi_label: bool = False
) -> None:
    console.print(
        f"{train:,} training and {dev:,} dev examples, {classes} labels"
        f"{', any number of them a text' if multi_label else ''}"
    )


def _import_fit() -> ModuleType:
    try:
        from dcnn.training import fit
    except ImportError:
        raise MissingExtraError("Training", "train") from None
    return fit


@contextmanager
def _training(
    console: Console, options: TrainOptions, config: Config, workers: "Workers | None"
) -> "Iterator[RunOptions]":
    """What a training needs while it runs; and how its errors end."""
    run_options = _import_fit().RunOptions
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{options.out.parent} cannot be made ({error.strerror})") from error
    with (
        TrainingBar(console) as bar,
        _tensorboard(options, config) as log,
        stop_on_signal(callback := Listeners(bar, log), patient=workers is not None),
    ):
        try:
            yield run_options(
                device=options.device,
                checkpoint_path=options.checkpoint,
                resume=options.resume,
                checkpoint_seconds=options.checkpoint_seconds,
                callback=callback,
                threads=options.threads,
                workers=workers,
            )
        except TrainingStoppedError as stopped:
            raise TrainingStoppedError(
                f"{stopped}; the same command with --resume goes on from there"
            ) from None
        except TrainingError as failed:
            raise TrainingError(
                f"{failed}; start again with other settings and --overwrite"
            ) from None


def _tensorboard(options: TrainOptions, config: Config) -> AbstractContextManager[Callback]:
    """What logs the run; of several processes the first one does."""
    if options.log_folder is None or not is_first():
        return nullcontext(Callback())
    return TensorBoardLog(options.log_folder, config)


def _config(options: TrainOptions) -> Config:
    config = given_config(options.config, options.settings)
    given = {"epochs": options.epochs, "seed": options.seed}
    return config.with_training(
        **{name: value for name, value in given.items() if value is not None}
    )


def _score(console: Console, artifact: Artifact, test: LabelledTexts) -> dict[str, float]:
    """Print the scores on ``test``; returns what the folder notes of them."""
    classes = [str(label) for label in artifact.classes]
    truth = test.with_classes(classes).targets
    probabilities = Predictor(artifact).probabilities(test.texts)
    console.print(f"Test ({test.source}):")
    if artifact.thresholds is not None:
        found = evaluate_labels(truth, probabilities, artifact.thresholds, classes)
        print_label_evaluation(console, found, artifact.thresholds)
        return {"test_micro_f1": found.micro_f1, "test_macro_f1": found.macro_f1}
    scores = evaluate(truth, probabilities, classes)
    print_evaluation(console, scores, classes)
    return {"test_accuracy": scores.accuracy}
