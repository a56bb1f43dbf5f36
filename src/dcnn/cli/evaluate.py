"""``dcnn evaluate``: the scores of a model on labelled texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from typer import Argument, Option

from dcnn import artifact as model_folder
from dcnn import metrics
from dcnn.batch_predict.lines import SEPARATOR
from dcnn.cli import console as cli
from dcnn.data.columns import did_you_mean, shown, shown_names
from dcnn.data.labels import LabelledTexts, check_form
from dcnn.data.readers import read_labelled
from dcnn.data.tables import write_table
from dcnn.errors import DataError, UserError
from dcnn.files import check_place, write_atomically
from dcnn.inspection.mistakes import find_mistakes
from dcnn.metrics import OUT_OF_SCOPE, Abstention, Evaluation, LabelEvaluation, RiskCoverage
from dcnn.plots import check_picture, draw_confusion, reliability_svg, risk_coverage_svg
from dcnn.predictor import Predictor

# A confusion matrix of more classes does not fit a screen: the most confused pairs are shown.
MATRIX_CLASSES = 12
WORST_PAIRS = 10
SCORES = ("accuracy", "micro_f1", "macro_f1", "subset_accuracy", "calibration_error")
COVERAGES = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)  # of the table of risk and coverage


@cli.grouped
def evaluate(
    model: cli.ModelFolder,
    data: Annotated[Path, Argument(metavar="FILE")],
    reading: cli.LabelTable,
    as_json: cli.Json = False,
    abstain_below: cli.Probability = None,
    diagram: Annotated[Path | None, Option("--reliability", metavar="FILE.svg")] = None,
    curve_picture: Annotated[Path | None, Option("--risk-coverage", metavar="FILE.svg")] = None,
    confusion: Annotated[Path | None, Option(metavar="FILE.svg|FILE.png")] = None,
    errors: Annotated[Path | None, Option(metavar="FILE")] = None,
    target_precision: cli.Probability = None,
    out_of_scope: cli.OutOfScope = None,
    out_of_scope_file: cli.OutOfScopeFile = None,
    store_threshold: Annotated[bool, Option("--store-threshold")] = False,
) -> None:
    """Score a model on labelled texts: accuracy, F1, confusion matrix and calibration error.

    Scores have 95 % bootstrap intervals, from 1,000 resamples of the texts. For a multi-label
    model: micro and macro F1, subset accuracy, and scores per label.

    For a model that abstains on uncertain texts, also prints the risk (error rate of the texts that
    get a label) at each coverage (share of texts that get one). --abstain-below scores one
    threshold. --target-precision chooses one; use other texts for it than for the final scores.
    """
    for option, picture in (("--reliability", diagram), ("--risk-coverage", curve_picture)):
        if picture is not None:
            if picture.suffix.lower() != ".svg":
                raise UserError(
                    f"{option} {picture}: the diagram is an SVG; name a file that ends in .svg"
                )
            check_place(option, picture)
    if confusion is not None:
        check_picture("--confusion", confusion)
    if errors is not None:
        cli.check_output_table("--errors", errors, data)
    if store_threshold and target_precision is None:
        raise UserError("--store-threshold stores what --target-precision chooses; give both")
    columns = reading()
    predictor = Predictor.load(model)
    thresholds, multi_label = predictor.artifact.thresholds, predictor.multi_label
    for option, value in (
        ("--abstain-below", abstain_below),
        ("--target-precision", target_precision),
        ("--out-of-scope", out_of_scope),
        ("--out-of-scope-file", out_of_scope_file),
        ("--risk-coverage", curve_picture),
        ("--confusion", confusion),
    ):
        if multi_label and value is not None:
            shown_value = f"{value:g}" if isinstance(value, float) else value
            raise UserError(
                f"{option} {shown_value} is for single-label models; {model} is "
                "multi-label, with a threshold per label"
            )
    examples = read_labelled(data, columns).with_hard_labels()
    labels = [str(label) for label in predictor.classes]
    check_form(examples, multi_label=multi_label, of=f"the training set of {model}")
    if out_of_scope is None and (stored := predictor.abstention.get("out_of_scope")) is not None:
        out_of_scope = str(stored)  # as `predict` treats it
    outside = cli.read_out_of_scope(out_of_scope_file, columns)
    if out_of_scope is not None and out_of_scope not in labels:
        examples, others = _split_off(examples, out_of_scope)
        outside = [*others, *outside]
    examples = examples.with_classes(labels)
    probabilities = predictor.probabilities(examples.texts)
    if diagram is not None:
        targets = examples.targets
        found = metrics.confidences(probabilities, targets, multi_label=multi_label)
        measure = "share of labels that apply" if multi_label else "accuracy"
        svg = reliability_svg(metrics.reliability(*found), f"{model.name} on {data.name}", measure)
        _write_picture(diagram, svg, "reliability diagram")
    scores = evaluate_model(predictor, examples, probabilities)
    intervals = metrics.bootstrap_intervals(examples.targets, probabilities, thresholds)
    if confusion is not None and isinstance(scores, Evaluation):
        title = f"{model.name} on {data.name}"
        drawn = draw_confusion(scores.pairs, labels, title, confusion.suffix.lower())
        _write_picture(confusion, drawn, "confusion matrix")
    if errors is not None:
        _write_errors(errors, predictor, examples, probabilities)
    answered = curve = record = None
    if not multi_label:
        number = labels.index(out_of_scope) if out_of_scope in labels else OUT_OF_SCOPE
        truth = np.concatenate([examples.targets, np.full(len(outside), OUT_OF_SCOPE)])
        every = np.concatenate([probabilities, predictor.probabilities(outside)])
        curve = metrics.risk_coverage(truth, every, number)
        no_answer = None if number == OUT_OF_SCOPE else predictor.classes[number]
        record = metrics.abstention_record(curve, data.name, no_answer, target_precision)
        if abstain_below is not None:
            answered = metrics.abstain(truth, every, abstain_below, number)
        if curve_picture is not None:
            title = f"{model.name} on {data.name}"
            svg = risk_coverage_svg(curve, title, record.get("threshold"))
            _write_picture(curve_picture, svg, "risk-coverage curve")
    if as_json:
        values = scores.to_dict() | {"labels": labels, "examples": len(examples.texts)}
        values["intervals"] = {name: list(ends) for name, ends in intervals.items()}
        if thresholds is not None:
            values["thresholds"] = dict(zip(labels, thresholds, strict=True))
        if answered is not None:
            values["answered"] = asdict(answered)
        if curve is not None and record is not None:
            risk = {"coverage": curve.coverage.tolist(), "risk": (1 - curve.precision).tolist()}
            values["risk_coverage"] = curve.to_dict() | risk
            values["abstention"] = {key: v for key, v in record.items() if key != "curve"}
        print(json.dumps(values))
    else:
        console = cli.make_console()
        print_evaluation(console, scores, thresholds, intervals)
        if curve is not None:
            _print_risk_coverage(console, curve)
        if answered is not None:
            print_abstention(console, answered)
        if record is not None and "threshold" in record:
            console.print(cli.describe_threshold(record))
    if target_precision is None or curve is None or record is None:
        return
    if "threshold" not in record:
        raise curve.unreachable(target_precision, data.name)
    if store_threshold:
        model_folder.store_abstention(model, record)
        cli.note(f"The threshold is stored in {model}.")


def _split_off(examples: LabelledTexts, label: str) -> tuple[LabelledTexts, list[str]]:
    """The examples without those of a label that the model does not know, and their texts."""
    names = [str(name) for name in examples.classes]
    if label not in names:
        raise DataError(
            f"{examples.source}: no text has the label of --out-of-scope {shown(label)}; the "
            f"labels are {shown_names(names)}; name one of them, or leave it out"
            f"{did_you_mean(label, names)}"
        )
    is_outside = examples.targets == names.index(label)
    if is_outside.all():
        raise DataError(
            f"{examples.source}: all texts are out of scope; give a file that has other labels "
            "too, and these texts with --out-of-scope-file"
        )
    outside = examples.select(np.flatnonzero(is_outside))
    return examples.select(np.flatnonzero(~is_outside)), list(outside.texts)


def _write_errors(
    path: Path, predictor: Predictor, examples: LabelledTexts, probabilities: NDArray[np.float32]
) -> None:
    mistakes = find_mistakes(predictor, examples.texts, examples.targets, probabilities)
    joined = SEPARATOR.join
    columns: dict[str, list[Any]] = {
        "where": [examples.where(one.index) for one in mistakes],
        "text": [one.text for one in mistakes],
        "label": [joined(map(str, one.true)) for one in mistakes],
        "predicted": [joined(map(str, one.predicted)) for one in mistakes],
        "probability": [round(one.probability, 6) for one in mistakes],
        "words": [", ".join(f"{word} {by:+.2f}" for word, by in one.words) for one in mistakes],
    }
    write_table(path, columns)
    cli.note(f"{len(mistakes):,} of {len(examples):,} texts are wrong; they are in {path}.")


def _write_picture(path: Path, picture: str | bytes, what: str) -> None:
    with write_atomically(path) as stream:
        stream.write(picture.encode("utf-8", "replace") if isinstance(picture, str) else picture)
    cli.note(f"The {what} is in {path}.")


def print_abstention(console: Console, answered: Abstention) -> None:
    """Print what a threshold does."""
    accuracy = answered.accuracy
    reached = "" if accuracy is None else f", accuracy when answered {100 * accuracy:.2f} %"
    console.print(
        f"abstaining below {answered.abstain_below:g}: "
        f"coverage {100 * answered.coverage:.2f} %{reached}"
    )


def _print_risk_coverage(console: Console, curve: RiskCoverage) -> None:
    last = ("out of scope",) if curve.outside_examples else ()
    table = cli.make_table("coverage", "risk", "answered", "errors", "abstain below", *last, left=0)
    for place in curve.at_coverages(COVERAGES):
        point = curve.describe(place)
        wrong = point["answered"] - int(curve.correct[place])
        cells = [f"{100 * point['coverage']:.1f} %", f"{100 * (1 - point['precision']):.2f} %"]
        cells += [f"{point['answered']:,}", f"{wrong:,}", f"{point['threshold']:.4f}"]
        table.add_row(*cells, *([f"{point['out_of_scope_answered']:,}"] if last else []))
    console.print(table)


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
    console: Console,
    scores: Evaluation | LabelEvaluation,
    thresholds: Sequence[float] | None,
    intervals: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> None:
    """Print the scores with their intervals, a table of labels, and which classes are confused."""
    values: dict[str, Any] = vars(scores)
    overall = []
    for name in (name for name in SCORES if name in values):
        ends = [f"{100 * end:.1f}" for end in intervals.get(name, ())]
        overall.append(
            f"{name} {100 * values[name]:.2f} %" + (f" ({' to '.join(ends)})" * bool(ends))
        )
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
        table = cli.make_table("most confused: true", "predicted", "examples", left=3)
        confused = scores.pairs[scores.pairs[:, 0] != scores.pairs[:, 1]]
        for true, predicted, count in confused[np.argsort(confused[:, 2])[::-1][:WORST_PAIRS]]:
            table.add_row(labels[true], labels[predicted], str(count))
    if table.row_count:
        console.print(table)
