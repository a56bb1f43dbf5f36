"""The drawn part of a feature graph as plain values: what the page draws.

Choice and places are those of the SVG (``dcnn.inspection.picture`` and ``layout``). Colours are the
page's own; here are the network's numbers.
"""

from typing import Any

import numpy as np

from dcnn.inspection.attribution import word_contributions
from dcnn.inspection.explanation import Explanation
from dcnn.inspection.layout import MARGIN, WORD_HEIGHT, Layout, place
from dcnn.inspection.picture import Picture, make_picture

PLACES = 1  # decimals of a pixel


def draw(explanation: Explanation, nodes: int, edges: int) -> dict[str, Any]:
    """The graph with ``nodes`` topmost nodes, and ``edges`` edges into every one."""
    picture = make_picture(explanation.graph, explanation.of_class, nodes, edges)
    layout = place(picture)
    floor = layout.layers[0][0]
    return {
        "width": round(layout.width, PLACES),
        "height": round(floor + WORD_HEIGHT + MARGIN, PLACES),
        "root": _point(layout.root),
        "layers": [[round(y, PLACES), name] for y, name in layout.layers],
        "words": _words(layout, picture),
        "nodes": _nodes(explanation, picture, layout),
        "edges": _edges(layout, picture),
        "topmost": picture.top,
        "contributions": picture.shown,
        "paths": picture.followed,
    }


def _words(layout: Layout, picture: Picture) -> list[dict[str, Any]]:
    drawn = []
    for word in layout.words:
        position = int(word.id.partition(":")[2]) if word.id else None
        drawn.append(
            {
                "id": word.id,
                "position": position,
                "x": round(word.x, PLACES),
                "y": round(word.y, PLACES),
                "width": round(word.width, PLACES),
                "text": word.text,
                "attribution": None if position is None else picture.attributions[position],
            }
        )
    return drawn


def _nodes(explanation: Explanation, picture: Picture, layout: Layout) -> list[dict[str, Any]]:
    nodes = explanation.graph.nodes
    numbers = np.array([node.number for node in picture.nodes])
    seen = dict(
        zip(numbers.tolist(), word_contributions(explanation.graph, numbers).tolist(), strict=True)
    )
    places = {node.id: node for node in layout.nodes}
    drawn = []
    for node in picture.nodes:
        placed, margin = places[node.id], float(nodes.margin[node.number])
        drawn.append(
            {
                "id": node.id,
                "x": round(placed.x, PLACES),
                "y": round(placed.y, PLACES),
                "radius": round(placed.radius, PLACES),
                **{
                    name: int(getattr(nodes, name)[node.number])
                    for name in ("layer", "map", "row", "position")
                },
                "value": float(nodes.value[node.number]),
                "margin": margin if np.isfinite(margin) else None,
                "contribution": node.contribution,
                "word_contributions": [round(amount, 6) for amount in seen[node.number]],
            }
        )
    return drawn


def _edges(layout: Layout, picture: Picture) -> list[dict[str, Any]]:
    contributions = {(edge.source, edge.target): edge.contribution for edge in picture.edges}
    return [
        {
            "source": edge.source,
            "target": edge.target,
            "contribution": contributions[edge.source, edge.target],
            "width": round(edge.width, 2),
            "start": _point(edge.start),
            "end": _point(edge.end),
        }
        for edge in layout.edges
    ]


def _point(point: tuple[float, float]) -> list[float]:
    return [round(point[0], PLACES), round(point[1], PLACES)]
