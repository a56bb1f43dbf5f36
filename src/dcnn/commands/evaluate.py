"""``dcnn evaluate``: the scores of a model on labelled texts."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.data.labels import LabelledTexts, check_form
from dcnn.data.readers import TableOptions, read_labelled
from dcnn.errors import UserError
from dcnn.files import check_place, write_atomically
from dcnn.metrics import abstain, confidences, evaluate, evaluate_labels, reliability
from dcnn.plots import reliability_svg
from dcnn.predictor import Predictor

PICTURE = ".svg"


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of the command; see its help."""

    model: Path
    data: Path
    columns: TableOptions
    as_json: bool = False
    abstain_below: float | None = None
    reliability: Path | None = None


def run_evaluate(options: EvaluateOptions) -> None:
    """Score the model on the data and print a table, or JSON."""
    _check_picture(options.reliability)
    predictor = Predictor.load(options.model)
    if predictor.multi_label and options.abstain_below is not None:
        raise UserError(
            f"--abstain-below {options.abstain_below:g} is for models that give one label; "
            f"{options.model} gives every label from its threshold on"
        )
    examples = read_labelled(options.data, options.columns)
    labels = [str(label) for label in predictor.classes]
    check_form(
        examples, multi_label=predictor.multi_label, of=f"the training set of {options.model}"
    )
    examples = examples.with_classes(labels)
    probabilities = predictor.probabilities(examples.texts)
    if options.reliability is not None:
        truth = examples.targets
        truth = truth if predictor.multi_label else np.eye(len(labels), dtype=np.float32)[truth]
        _draw(options, options.reliability, probabilities, truth, predictor.multi_label)
    if predictor.artifact.thresholds is not None:
        thresholds = predictor.artifact.thresholds
        _tell_labels(options, examples, probabilities, thresholds, labels)
    else:
        _tell_label(options, examples, probabilities, labels)


def _tell_label(
    options: EvaluateOptions,
    examples: LabelledTexts,
    probabilities: NDArray[np.float32],
    labels: list[str],
) -> None:
    """Where a text has one label."""
    truth = examples.targets
    scores = evaluate(truth, probabilities, labels)
    answered = None
    if options.abstain_below is not None:
        answered = abstain(truth, probabilities, options.abstain_below)
    if options.as_json:
        values = scores.to_dict() | {"labels": labels, "examples": len(truth)}
        print(json.dumps(values | ({} if answered is None else {"answered": asdict(answered)})))
        return
    from dcnn.terminal import make_console, print_evaluation

    console = make_console()
    print_evaluation(console, scores, labels)
    if answered is not None:
        share = answered.accuracy
        right = "" if share is None else f", {100 * share:.2f} % of them rightly"
        console.print(
            f"abstaining below {answered.abstain_below:g}: "
            f"{100 * answered.coverage:.2f} % of the texts are answered{right}"
        )


def _tell_labels(
    options: EvaluateOptions,
    examples: LabelledTexts,
    probabilities: NDArray[np.float32],
    thresholds: tuple[float, ...],
    labels: list[str],
) -> None:
    """Where a text may have several labels."""
    truth = examples.targets
    scores = evaluate_labels(truth, probabilities, thresholds, labels)
    if options.as_json:
        more: dict[str, Any] = {"thresholds": dict(zip(labels, thresholds, strict=True))}
        print(json.dumps(scores.to_dict() | more | {"labels": labels, "examples": len(truth)}))
        return
    from dcnn.terminal import make_console, print_label_evaluation

    print_label_evaluation(make_console(), scores, thresholds)


def _draw(
    options: EvaluateOptions,
    path: Path,
    probabilities: NDArray[np.float32],
    truth: NDArray[np.float32],
    multi_label: bool,
) -> None:
    bins = reliability(*confidences(probabilities, truth, multi_label=multi_label))
    y_label = "share of labels that apply" if multi_label else "accuracy"
    picture = reliability_svg(bins, f"{options.model.name} on {options.data.name}", y_label)
    with write_atomically(path) as stream:
        stream.write(picture.encode("utf-8", "replace"))
    print(f"The reliability diagram is in {path}.", file=sys.stderr)


def _check_picture(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix.lower() != PICTURE:
        raise UserError(
            f"--reliability {path}: the diagram is an SVG; name a file that ends in .svg"
        )
    check_place("--reliability", path)
