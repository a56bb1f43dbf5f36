"""``/v1/explain``, ``/v1/compare`` and ``/v1/detectors``: explanations as plain values.

What a graph shows and where is decided by ``dcnn.inspection.picture``, as for the
SVG. Colours are the page's own; the numbers are the network's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from starlette.exceptions import HTTPException

from dcnn.config import DCNNConfig
from dcnn.data.readers import TableOptions, read_rows
from dcnn.inspection.attribution import node_word_contributions
from dcnn.inspection.detector_ranking import Detector, Progress
from dcnn.inspection.detectors import DetectorIndex, rank_detectors
from dcnn.inspection.explanation import Explanation, compare, explain
from dcnn.inspection.picture import make_picture, place
from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.prediction import prediction_response
from dcnn.serve.protocol import json_bytes
from dcnn.serve.registry import ServedModel
from dcnn.serve.schemas import (
    CompareRequest,
    CompareResponse,
    DetectorsQuery,
    Drawing,
    ExplainRequest,
    ExplanationResponse,
    GraphRequest,
)

TOP = 8  # n-grams of a detector


def check_words(model: ServedModel, texts: Sequence[str], limits: Limits) -> None:
    """Refuse texts that would take too long: the time grows with the square of their words."""
    encoder = model.predictor.artifact.encoder
    words = sum(len(encoder.tokenizer(text)) for text in texts)
    if words > limits.explain_words:
        raise HTTPException(
            422,
            f"{words:,} {encoder.unit}s are too many to explain; send at most "
            f"{limits.explain_words:,} at once",
        )


def explain_text(model: ServedModel, text: str, request: ExplainRequest) -> bytes:
    """One of the explanations in the response of ``/v1/explain``."""
    explanation = explain(model.predictor, text, request.given("of_class"))
    return json_bytes(_explanation_response(explanation, request))


def compare_texts(model: ServedModel, request: CompareRequest) -> bytes:
    """The response of ``/v1/compare``."""
    first, second = request.texts
    before = explain(model.predictor, first, request.given("of_class"))
    after = explain(model.predictor, second, before.label)
    comparison = compare(before, after)
    if model.detectors is not None:
        changes = []
        for change in comparison.changes:
            at = detectors_of_node(model, f"{change.layer}:{change.map}:{change.row}")
            names = map(model.detectors.name, sorted(at))
            changes.append(replace(change, name=" + ".join(filter(None, names))))
        comparison = replace(comparison, changes=tuple(changes))
    explanations = [_explanation_response(one, request) for one in (before, after)]
    response: CompareResponse = {
        "model": model.name,
        "explanations": explanations,
        "comparison": comparison,
    }
    return json_bytes(response)


def _explanation_response(explanation: Explanation, request: GraphRequest) -> ExplanationResponse:
    return {
        "text": explanation.prediction.text,
        **prediction_response(explanation.prediction),
        "class": explanation.label,
        "logit": explanation.logit,
        "biases": explanation.biases,
        "words": explanation.described_words(),
        "ngrams": explanation.ngrams,
        "deletions": explanation.deletions,
        "graph": draw(explanation, request.nodes, request.edges),
    }


def draw(explanation: Explanation, nodes: int, edges: int) -> Drawing:
    """The graph with ``nodes`` nodes of the last layer, and ``edges`` edges into every node."""
    trace = explanation.trace
    picture = make_picture(trace, explanation.of_class, nodes, edges)
    word_contributions: dict[str, list[float]] = {}
    for layer in range(1, trace.depth + 1):
        drawn = [node for node in picture.nodes if node.layer == layer]
        numbers = np.array([node.number for node in drawn])
        amounts = node_word_contributions(trace, layer, numbers).round(6).tolist()
        word_contributions |= zip([node.id for node in drawn], amounts, strict=True)
    return {
        "layout": place(picture),
        "word_contributions": word_contributions,
        "top_nodes": trace.head_weight.shape[1],
        "node_contributions": picture.node_contributions,
        "path_contributions": picture.path_contributions,
    }


def corpus_texts(path: Path, options: TableOptions) -> Iterator[str]:
    """The texts of a corpus, one by one."""
    return (row.text for row in read_rows(path, options, labels=False))


def index_detectors(
    predictor: Predictor, texts: Iterable[str], progress: Progress | None = None
) -> DetectorIndex:
    """Rank the detectors over a corpus, and name them all now: the workers then share the names."""
    index = rank_detectors(predictor, texts, top=TOP, progress=progress)
    index.by_distinctiveness()
    return index


def find_detectors(model: ServedModel, query: DetectorsQuery) -> bytes:
    """The response of ``/v1/detectors``; an error if there is no corpus, node or word."""
    index, given = model.detectors, query.model_fields_set
    if index is None:
        raise HTTPException(404, model.detectors_note)
    known = index.detectors
    found = list(index.find(query.word) if "word" in given else known)
    for name in given & {"layer", "map", "row"}:
        found = [one for one in found if getattr(one, name) == getattr(query, name)]
    if "node" in given:
        summed = detectors_of_node(model, query.node)
        if not summed <= set(known):
            raise HTTPException(
                422,
                f"node: there is no node {query.node} here; detectors are {known[0]} to "
                f"{known[-1]} (layer:map:row), and folding sums two of the first layer",
            )
        found = [one for one in found if one in summed]
    described = [index.describe(one) for one in found[: query.limit]]
    return json_bytes({"model": model.name, "detectors": described, "total": len(found)})


def detectors_of_node(model: ServedModel, node: str) -> set[Detector]:
    """The detectors that a node, as ``layer:map:row``, is the sum of.

    Detectors of the first layer are rows before folding, and folding sums two of them into one.
    """
    layer, number, row = map(int, node.split(":"))
    config = model.predictor.artifact.config.model
    summed = {Detector(layer, number, row)}
    if layer == 1 and isinstance(config, DCNNConfig) and config.fold:
        summed.add(Detector(layer, number, row + config.dim // 2))
    return summed
