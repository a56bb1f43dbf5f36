"""``dcnn train``: read and check everything first, then train, score once, and save.

Torch is imported when all input has been found good: a typo is answered at once.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.commands.examples import read_examples, sorted_labels
from dcnn.commands.stopping import stop_on_signal
from dcnn.config import Config, load_toml
from dcnn.data.splitting import hold_out
from dcnn.data.tables import LabelledTexts, TableOptions
from dcnn.errors import (
    MissingExtraError,
    StorageError,
    TrainingError,
    TrainingStoppedError,
    UserError,
)
from dcnn.evaluation import evaluate
from dcnn.label_scores import evaluate_labels
from dcnn.predictor import Predictor
from dcnn.terminal import TrainingBar, make_console, print_evaluation, print_label_evaluation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dcnn.training.progress import EvaluationRecord
    from dcnn.training.run import TrainingSummary


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

    @property
    def checkpoint(self) -> Path:
        """The file beside the model folder that holds an unfinished run."""
        return Path(f"{self.out if self.out.name else self.out.resolve()}.checkpoint")


def run_train(options: TrainOptions) -> None:
    """Train, and leave the model folder at ``options.out``."""
    console = make_console(stderr=True)
    replaces = options.overwrite or options.checkpoint.exists()  # a resumed run began as it did
    if options.resume and not replaces and model_folder.is_model_folder(options.out):
        console.print(f"{options.out} is finished already; there is nothing to resume.")
        return
    if options.checkpoint.exists() and not (options.resume or options.overwrite):
        raise UserError(
            f"{options.checkpoint} holds an unfinished run; "
            "pass --resume to go on with it, or --overwrite to start again"
        )
    model_folder.check_destination(options.out, replaces)
    config = _config(options)
    train, dev, test = read_examples(
        options.data, options.dev, options.test, options.columns, many=True
    )
    if dev is None:
        train, dev = hold_out(train, config.training)
    classes = sorted_labels([label for labels in train.each for label in labels])
    console.print(
        f"{len(train.texts):,} training and {len(dev.texts):,} dev examples, {len(classes)} labels"
        f"{', any number of them a text' if train.many else ''}",
    )
    artifact, summary = _fit(console, options, config, classes, train, dev)
    console.print(
        f"Trained {summary.epochs} of {config.training.epochs} epochs in {summary.seconds:.1f} s "
        f"({summary.sentences_per_second:,.0f} sentences/s on {artifact.facts['device']}), "
        f"and kept the best: epoch {(best := _best(summary)).epoch}, {best.measure}",
        soft_wrap=True,
    )
    _tell_calibration(console, artifact)
    facts = artifact.facts | {
        "data": options.data.name or options.data.resolve().name,
        "dcnn": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if test is not None:
        facts |= _score(console, artifact, test, classes)
    model_folder.save(options.out, replace(artifact, facts=facts), replaces)
    options.checkpoint.unlink(missing_ok=True)
    hint = f"try: dcnn predict {options.out} 'a text'"
    console.print(f"The model is in {options.out}; {hint}", soft_wrap=True)


def _tell_calibration(console: Console, artifact: Artifact) -> None:
    if (found := artifact.facts.get("calibration")) is not None:
        console.print(
            f"Calibrated on dev: temperature {found['temperature']:.2f}, calibration error "
            f"{100 * found['error_before']:.2f} % before, {100 * found['error_after']:.2f} % after",
            soft_wrap=True,
        )


def _best(summary: "TrainingSummary") -> "EvaluationRecord":
    return [record for record in summary.history if record.best][-1]


def _fit(
    console: Console,
    options: TrainOptions,
    config: Config,
    classes: Sequence[str],
    train: LabelledTexts,
    dev: LabelledTexts,
) -> tuple[Artifact, "TrainingSummary"]:
    try:
        from dcnn.training.fit import TextSet, fit
    except ImportError:
        raise MissingExtraError("Training", "train") from None

    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{options.out.parent} cannot be made ({error.strerror})") from error
    with TrainingBar(console) as bar, stop_on_signal(bar):
        try:
            return fit(
                TextSet(train.texts, _targets(train, classes), train.weights),
                TextSet(dev.texts, _targets(dev, classes)),
                classes,
                config,
                device=options.device,
                checkpoint_path=options.checkpoint,
                resume=options.resume,
                checkpoint_seconds=options.checkpoint_seconds,
                listener=bar,
                threads=options.threads,
                many=train.many,
            )
        except TrainingStoppedError as stopped:
            raise TrainingStoppedError(
                f"{stopped}; the same command with --resume goes on from there"
            ) from None
        except TrainingError as failed:
            raise TrainingError(
                f"{failed}; start again with other settings and --overwrite"
            ) from None


def _targets(examples: LabelledTexts, classes: Sequence[str]) -> "NDArray[Any]":
    return examples.indicators(classes) if examples.many else examples.class_numbers(classes)


def _config(options: TrainOptions) -> Config:
    config = load_toml(options.config) if options.config else Config()
    config = config.with_settings(options.settings)
    given = {"epochs": options.epochs, "seed": options.seed}
    return config.with_training(
        **{name: value for name, value in given.items() if value is not None}
    )


def _score(
    console: Console, artifact: Artifact, test: LabelledTexts, classes: Sequence[str]
) -> dict[str, float]:
    """Print the scores on ``test``; returns what the folder notes of them."""
    probabilities = Predictor(artifact).probabilities(test.texts)
    console.print(f"Test ({test.source}):")
    if artifact.thresholds is not None:
        truth = test.indicators(classes)
        found = evaluate_labels(truth, probabilities, artifact.thresholds, classes)
        print_label_evaluation(console, found, artifact.thresholds)
        return {"test_micro_f1": found.micro_f1, "test_macro_f1": found.macro_f1}
    scores = evaluate(test.class_numbers(classes), probabilities, classes)
    print_evaluation(console, scores, classes)
    return {"test_accuracy": scores.accuracy}
