"""Files of a feature graph; the ending of a file's name chooses its format."""

from collections.abc import Callable
from pathlib import Path

from dcnn.errors import UserError
from dcnn.inspection.feature_graph import FeatureGraph
from dcnn.inspection.picture import Picture

Writer = Callable[[FeatureGraph, Picture], bytes]

ENDINGS = (".svg", ".png", ".html", ".json", ".graphml")


def writer_for(path: Path) -> Writer:
    """What makes the bytes of a file named ``path``: the whole graph, or a picture of it.

    Raises:
        UserError: the ending is none of ``ENDINGS``.
        MissingExtraError: the format needs a package that is not installed.
    """
    match path.suffix.lower():  # a format's module is imported when it is asked for
        case ".svg":
            from dcnn.inspection.svg import to_svg

            return lambda _, picture: to_svg(picture).encode()
        case ".png":
            from dcnn.inspection.png import to_png

            return lambda _, picture: to_png(picture)
        case ".html":
            from dcnn.inspection.html import to_html

            return lambda _, picture: to_html(picture).encode()
        case ".json":
            from dcnn.inspection.node_link import to_json

            return lambda graph, _: to_json(graph)
        case ".graphml":
            from dcnn.inspection.graphml import to_graphml

            return lambda graph, _: to_graphml(graph)
        case ending:
            raise UserError(
                f"{path}: the ending {ending!r} names no format; use one of {', '.join(ENDINGS)}"
            )
