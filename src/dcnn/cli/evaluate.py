"""``dcnn evaluate``: the scores of a model on labelled texts."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from typer import Argument, Option

from dcnn import metrics
from dcnn.cli import console as cli
from dcnn.data.labels import LabelledTexts, check_form
from dcnn.data.readers import TableOptions, read_labelled
from dcnn.errors import UserError
from dcnn.files import check_place, write_atomically
from dcnn.metrics import Evaluation, LabelEvaluation
from dcnn.plots import reliability_svg
from dcnn.predictor import Predictor

# A confusion matrix of more classes does not fit a screen: the most confused pairs are shown.
MATRIX_CLASSES = 12
WORST_PAIRS = 10
SCORES = ("accuracy", "micro_f1", "macro_f1", "subset_accuracy", "calibration_error")
_RELIABILITY = "Draw the reliability diagram: accuracy by confidence."


def evaluate(
    model: cli.ModelFolder,
    data: Annotated[Path, Argument(metavar="FILE", help=cli.LABELLED_FILES)],
    as_json: cli.Json = False,
    text_column: cli.TextColumn = None,
    label_column: cli.LabelColumn = None,
    labels_separator: cli.LabelsSeparator = None,
    label_columns: cli.LabelColumns = None,
    multi_label: cli.MultiLabel = None,
    encoding: cli.Encoding = "utf-8",
    no_header: cli.NoHeader = False,
    abstain_below: cli.AbstainBelow = None,
    diagram: Annotated[
        Path | None, Option("--reliability", metavar="FILE.svg", help=_RELIABILITY)
    ] = None,
) -> None:
    """Score a model on labelled texts: accuracy, F1, confusion matrix and calibration error.

    With --abstain-below also the coverage (share of texts that get a label) and the accuracy of
    those. For a multi-label model: micro and macro F1, subset accuracy, and scores per label.
    """
    if diagram is not None:
        if diagram.suffix.lower() != ".svg":
            raise UserError(
                f"--reliability {diagram}: the diagram is an SVG; name a file that ends in .svg"
            )
        check_place("--reliability", diagram)
    columns = TableOptions(text_column, label_column, encoding=encoding, header=not no_header)
    columns = cli.with_labels(columns, labels_separator, label_columns, multi_label)
    predictor = Predictor.load(model)
    thresholds, multi_label = predictor.artifact.thresholds, predictor.multi_label
    if multi_label and abstain_below is not None:
        raise UserError(
            f"--abstain-below {abstain_below:g} is for single-label models; {model} is "
            "multi-label, with a threshold per label"
        )
    examples = read_labelled(data, columns).with_hard_labels()
    labels = [str(label) for label in predictor.classes]
    check_form(examples, multi_label=multi_label, of=f"the training set of {model}")
    examples = examples.with_classes(labels)
    probabilities = predictor.probabilities(examples.texts)
    if diagram is not None:
        targets = examples.targets
        truth = targets if multi_label else np.eye(len(labels), dtype=np.float32)[targets]
        found = metrics.confidences(probabilities, truth, multi_label=multi_label)
        measure = "share of labels that apply" if multi_label else "accuracy"
        svg = reliability_svg(metrics.reliability(*found), f"{model.name} on {data.name}", measure)
        with write_atomically(diagram) as stream:
            stream.write(svg.encode("utf-8", "replace"))
        print(f"The reliability diagram is in {diagram}.", file=sys.stderr)
    scores = evaluate_model(predictor, examples, probabilities)
    answered = None
    if abstain_below is not None:
        answered = metrics.abstain(examples.targets, probabilities, abstain_below)
    if as_json:
        values = scores.to_dict() | {"labels": labels, "examples": len(examples.texts)}
        if thresholds is not None:
            values["thresholds"] = dict(zip(labels, thresholds, strict=True))
        if answered is not None:
            values["answered"] = asdict(answered)
        print(json.dumps(values))
        return
    console = cli.make_console()
    print_evaluation(console, scores, thresholds)
    if answered is not None:
        accuracy = answered.accuracy
        reached = "" if accuracy is None else f", accuracy when answered {100 * accuracy:.2f} %"
        console.print(
            f"abstaining below {answered.abstain_below:g}: "
            f"coverage {100 * answered.coverage:.2f} %{reached}"
        )


def evaluate_model(
    predictor: Predictor, examples: LabelledTexts, probabilities: NDArray[np.float32]
) -> Evaluation | LabelEvaluation:
    """The scores of the predicted ``probabilities`` of ``examples``."""
    labels, thresholds = [str(label) for label in predictor.classes], predictor.artifact.thresholds
    targets = examples.with_classes(labels).targets
    if thresholds is not None:
        return metrics.evaluate_labels(targets, probabilities, thresholds, labels)
    return metrics.evaluate(targets, probabilities, labels)


def print_evaluation(
    console: Console, scores: Evaluation | LabelEvaluation, thresholds: Sequence[float] | None
) -> None:
    """Print the scores, a table of the labels, and which classes are confused."""
    values: dict[str, Any] = vars(scores)
    overall = [f"{name} {100 * values[name]:.2f} %" for name in SCORES if name in values]
    console.print("   ".join(overall).replace("_f1", " F1").replace("_", " "))
    per_label = scores.per_class if isinstance(scores, Evaluation) else scores.per_label
    last = () if thresholds is None else ("threshold",)
    table = cli.make_table("label", "precision", "recall", "F1", "examples", *last)
    for number, score in enumerate(per_label):
        cells = [f"{value:.3f}" for value in (score.precision, score.recall, score.f1)]
        cells.append(str(score.support))
        if thresholds is not None:
            cells.append(f"{thresholds[number]:.3f}")
        table.add_row(score.label, *cells)
    console.print(table)
    if not isinstance(scores, Evaluation):
        return
    labels = [score.label for score in per_label]
    if len(labels) <= MATRIX_CLASSES:
        table = cli.make_table("true \\ predicted", *labels)
        for label, row in zip(labels, scores.confusion, strict=True):
            table.add_row(label, *map(str, row))
    else:
        counts = scores.confusion.copy()
        np.fill_diagonal(counts, 0)
        table = cli.make_table("most confused: true", "predicted", "examples", left=3)
        for place in counts.argsort(axis=None)[::-1][:WORST_PAIRS]:
            true, predicted = divmod(int(place), len(labels))
            if counts[true, predicted]:
                table.add_row(labels[true], labels[predicted], str(counts[true, predicted]))
    console.print(table)
