"""``dcnn evaluate``: the scores of a model on labelled texts."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dcnn.calibration import confidences, reliability
from dcnn.data.tables import TableOptions, check_known_labels, read_labelled
from dcnn.errors import UserError
from dcnn.evaluation import abstain, evaluate
from dcnn.files import check_place, write_atomically
from dcnn.predictor import Predictor
from dcnn.reliability_picture import reliability_svg

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
    examples = read_labelled(options.data, options.columns)
    labels = [str(label) for label in predictor.classes]
    check_known_labels(examples, labels)
    truth = examples.class_numbers(labels)
    probabilities = predictor.probabilities(examples.texts)
    scores = evaluate(truth, probabilities, labels)
    answered = None
    if options.abstain_below is not None:
        answered = abstain(truth, probabilities, options.abstain_below)
    if options.reliability is not None:
        bins = reliability(*confidences(probabilities, np.eye(len(labels))[truth]))
        picture = reliability_svg(bins, f"{options.model.name} on {options.data.name}")
        with write_atomically(options.reliability) as stream:
            stream.write(picture.encode("utf-8", "replace"))
    if options.as_json:
        values = scores.to_dict() | {"labels": labels, "examples": len(truth)}
        print(json.dumps(values | ({} if answered is None else {"answered": asdict(answered)})))
        return
    from dcnn.terminal import make_console, print_evaluation

    console = make_console()
    print_evaluation(console, scores, labels)
    if answered is not None:
        right = (
            ""
            if answered.accuracy is None
            else f", {100 * answered.accuracy:.2f} % of them rightly"
        )
        console.print(
            f"abstaining below {answered.abstain_below:g}: "
            f"{100 * answered.coverage:.2f} % of the texts are answered{right}"
        )
    if options.reliability is not None:
        console.print(f"The reliability diagram is in {options.reliability}.", soft_wrap=True)


def _check_picture(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix.lower() != PICTURE:
        raise UserError(
            f"--reliability {path}: the diagram is an SVG; name a file that ends in .svg"
        )
    check_place("--reliability", path)
