"""``/v1/explain`` and ``/v1/compare``: explanations as plain values, with a graph to be drawn."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dcnn.inspection.comparison import DetectorChange, compare
from dcnn.inspection.explanation import Explanation, explain
from dcnn.serve.answers import json_bytes
from dcnn.serve.detectors import joined_detectors
from dcnn.serve.drawing import draw
from dcnn.serve.limits import Limits
from dcnn.serve.prediction import described
from dcnn.serve.refusals import Refusal
from dcnn.serve.registry import ServedModel
from dcnn.serve.schemas import CompareQuestion, ExplainQuestion


def explanation(model: ServedModel, text: str, question: ExplainQuestion) -> bytes:
    """One of the explanations in the answer to ``/v1/explain``."""
    return json_bytes(_values(explain(model.predictor, text, question.given("of_class")), question))


def check_words(model: ServedModel, texts: Sequence[str], limits: Limits) -> None:
    """Refuse texts that would take too long: the time grows with the square of their words.

    Raises:
        Refusal: they have too many words in all.
    """
    encoder = model.predictor.artifact.encoder
    words = sum(len(encoder.tokenizer(text)) for text in texts)
    if words > limits.explained_words:
        raise Refusal(
            422,
            f"there are {words:,} {encoder.unit}s, too many to be explained; send at most "
            f"{limits.explained_words:,} at once",
        )


def comparison(model: ServedModel, question: CompareQuestion) -> bytes:
    """The whole answer to ``/v1/compare``."""
    first, second = question.texts
    before = explain(model.predictor, first, question.given("of_class"))
    after = explain(model.predictor, second, before.label)
    found = compare(before, after)
    return json_bytes(
        {
            "model": model.name,
            "explanations": [_values(before, question), _values(after, question)],
            "difference": found.difference,
            "aligned": found.aligned,
            "changes": [
                asdict(change) | {"name": _name(model, change)} for change in found.changes
            ],
            "others": found.others,
        }
    )


def _name(model: ServedModel, change: DetectorChange) -> str:
    if model.detectors is None:
        return ""
    joined = sorted(joined_detectors(model, f"{change.layer}:{change.map}:{change.row}"))
    return " + ".join(filter(None, map(model.detectors.name, joined)))


def _values(
    explanation: Explanation, question: ExplainQuestion | CompareQuestion
) -> dict[str, Any]:
    return {
        "text": explanation.prediction.text,
        **described(explanation.prediction),
        "class": explanation.label,
        "logit": explanation.logit,
        "biases": explanation.biases,
        "words": explanation.described_words(),
        "ngrams": [asdict(ngram) for ngram in explanation.ngrams],
        "deletions": [asdict(deletion) for deletion in explanation.deletions],
        "graph": draw(explanation, question.nodes, question.edges),
    }
