"""The feature graph as GraphML, for programs that draw and measure graphs.

GraphML has no lists and no null. Each class has a ``contribution`` attribute of its own, named
after it; ``classes``, ``bias``, ``logits`` and ``words`` are JSON; what is null is left out.
"""

import io
import json
from typing import Any

from dcnn.errors import MissingExtraError
from dcnn.inspection.feature_graph import FeatureGraph
from dcnn.inspection.node_link import to_networkx
from dcnn.inspection.svg import xml_characters

try:
    import networkx
except ImportError:
    raise MissingExtraError("Writing GraphML", "explain") from None


def to_graphml(graph: FeatureGraph) -> bytes:
    """The graph as GraphML."""
    g = to_networkx(graph)
    for attributes in g.nodes.values():
        _drop_nulls(attributes)
        if "word" in attributes:
            attributes["word"] = xml_characters(attributes["word"])
    names = [f"contribution {xml_characters(str(label))}" for label in graph.classes]
    for attributes in g.edges.values():
        attributes |= zip(names, attributes.pop("contribution", ()), strict=False)
    g.graph = {name: xml_characters(json.dumps(value)) for name, value in g.graph.items()}
    stream = io.BytesIO()
    networkx.write_graphml(g, stream)
    return stream.getvalue()


def _drop_nulls(attributes: dict[str, Any]) -> None:
    for name in [name for name, value in attributes.items() if value is None]:
        del attributes[name]
