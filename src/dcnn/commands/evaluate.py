"""``dcnn evaluate``: the scores of a model on labelled texts."""

import json
from pathlib import Path

from dcnn.data.tables import TableOptions, check_known_labels, read_labelled
from dcnn.evaluation import evaluate
from dcnn.predictor import Predictor


def run_evaluate(model: Path, data: Path, columns: TableOptions, as_json: bool) -> None:
    """Score ``model`` on ``data`` and print a table, or JSON."""
    predictor = Predictor.load(model)
    examples = read_labelled(data, columns)
    labels = [str(label) for label in predictor.classes]
    check_known_labels(examples, labels)
    truth = examples.class_numbers(labels)
    scores = evaluate(truth, predictor.probabilities(examples.texts), labels)
    if as_json:
        print(json.dumps(scores.to_dict() | {"labels": labels, "examples": len(truth)}))
        return
    from dcnn.terminal import make_console, print_evaluation

    print_evaluation(make_console(), scores, labels)
