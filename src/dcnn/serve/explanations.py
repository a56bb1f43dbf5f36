"""``/v1/explain``, ``/v1/compare`` and ``/v1/detectors``: explanations as plain values.

What a graph shows and where is decided by ``dcnn.inspection.picture``, as for the
SVG. Colours are the page's own; the numbers are the network's.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import cast

import numpy as np
from starlette.exceptions import HTTPException

from dcnn.config import DCNNConfig
from dcnn.data.readers import TableOptions, read_rows
from dcnn.inspection.attribution import node_word_contributions
from dcnn.inspection.detector_ranking import Detector, Progress
from dcnn.inspection.detectors import DetectorIndex, rank_detectors
from dcnn.inspection.explanation import Explanation, compare, explain
from dcnn.inspection.picture import (
    MARGIN,
    WORD_HEIGHT,
    Layout,
    Picture,
    PlacedWord,
    make_picture,
    place,
)
from dcnn.predictor import Predictor
from dcnn.serve.prediction import prediction_response
from dcnn.serve.protocol import Limits, json_bytes
from dcnn.serve.registry import ServedModel
from dcnn.serve.schemas import (
    CompareRequest,
    DetectorsQuery,
    Drawing,
    DrawnEdge,
    DrawnNode,
    DrawnWord,
    ExplainRequest,
    ExplanationResponse,
    GraphRequest,
    Word,
)

TOP = 8  # n-grams of a detector
PLACES = 1  # decimals of a pixel


def check_words(model: ServedModel, texts: Sequence[str], limits: Limits) -> None:
    """Refuse texts that would take too long: the time grows with the square of their words.

    Raises:
        HTTPException: they have too many words in all.
    """
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
    found = compare(before, after)
    changes = []
    for change in found.changes:
        name = ""
        if model.detectors is not None:
            at = sorted(detectors_of_node(model, f"{change.layer}:{change.map}:{change.row}"))
            name = " + ".join(filter(None, map(model.detectors.name, at)))
        changes.append(vars(change) | {"name": name})
    return json_bytes(
        {
            **vars(found),
            "model": model.name,
            "explanations": [_explanation_response(one, request) for one in (before, after)],
            "changes": changes,
        }
    )


def _explanation_response(explanation: Explanation, request: GraphRequest) -> ExplanationResponse:
    return {
        "text": explanation.prediction.text,
        **prediction_response(explanation.prediction),
        "class": explanation.label,
        "logit": explanation.logit,
        "biases": explanation.biases,
        "words": cast("list[Word]", explanation.described_words()),
        "ngrams": explanation.ngrams,
        "deletions": explanation.deletions,
        "graph": draw(explanation, request.nodes, request.edges),
    }


def draw(explanation: Explanation, nodes: int, edges: int) -> Drawing:
    """The graph with ``nodes`` nodes of the last layer, and ``edges`` edges into every node."""
    picture = make_picture(explanation.trace, explanation.of_class, nodes, edges)
    layout = place(picture)
    drawn_edges: list[DrawnEdge] = [
        {
            "source": placed.edge.source,
            "target": placed.edge.target,
            "contribution": placed.edge.contribution,
            "width": round(placed.width, 2),
            "start": _point(placed.start),
            "end": _point(placed.end),
        }
        for placed in layout.edges
    ]
    return {
        "width": round(layout.width, PLACES),
        "height": round(layout.layers[0][0] + WORD_HEIGHT + MARGIN, PLACES),
        "root": _point(layout.root),
        "layers": [(round(y, PLACES), name) for y, name in layout.layers],
        "words": [_draw_word(word, picture) for word in layout.words],
        "nodes": _draw_nodes(layout, picture),
        "edges": drawn_edges,
        "topmost": picture.trace.head_weight.shape[1],
        "contributions": picture.node_contributions,
        "paths": picture.path_contributions,
    }


def _draw_word(word: PlacedWord, picture: Picture) -> DrawnWord:
    position = word.position
    return {
        "id": word.id,
        "position": position,
        "x": round(word.x, PLACES),
        "y": round(word.y, PLACES),
        "width": round(word.width, PLACES),
        "text": word.text,
        "attribution": None if position is None else picture.attributions[position],
    }


def _draw_nodes(layout: Layout, picture: Picture) -> list[DrawnNode]:
    drawn: list[DrawnNode] = []
    for layer in range(1, picture.trace.depth + 1):
        placed = [placed for placed in layout.nodes if placed.node.layer == layer]
        numbers = np.array([placed.node.number for placed in placed])
        by_word = node_word_contributions(picture.trace, layer, numbers).round(6).tolist()
        for at, words in zip(placed, by_word, strict=True):
            node = at.node
            drawn.append(
                {
                    "id": node.id,
                    "x": round(at.x, PLACES),
                    "y": round(at.y, PLACES),
                    "radius": round(at.radius, PLACES),
                    "layer": node.layer,
                    "map": node.map,
                    "row": node.row,
                    "position": node.position,
                    "value": node.value,
                    "margin": node.margin if isfinite(node.margin) else None,
                    "contribution": node.contribution,
                    "word_contributions": words,
                }
            )
    return drawn


def _point(point: tuple[float, float]) -> tuple[float, float]:
    return round(point[0], PLACES), round(point[1], PLACES)


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
    """The response of ``/v1/detectors``.

    Raises:
        HTTPException: there is no corpus, the model has no detectors, or there is no such node.
        UserError: the word is not in the vocabulary.
    """
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
