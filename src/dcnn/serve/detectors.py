"""``/v1/detectors``: what the detectors of a model answer to in the corpus of the server."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dcnn.config import DCNNConfig
from dcnn.data.readers import TableOptions, read_rows
from dcnn.inspection.detector_ranking import Progress
from dcnn.inspection.detectors import Detector, DetectorIndex, rank_detectors
from dcnn.predictor import Predictor
from dcnn.serve.answers import json_bytes
from dcnn.serve.refusals import Refusal
from dcnn.serve.registry import ServedModel

TOP = 8  # n-grams told of a detector


@dataclass(frozen=True)
class Wanted:
    """Which detectors; what is None does not matter.

    Attributes:
        layer: of this layer.
        map: of this feature map.
        row: of this row.
        node: those that a node of the feature graph joins, as ``layer:map:row``.
        word: those whose n-grams have more of this word than the corpus; the best first.
        limit: at most so many.
    """

    layer: int | None = None
    map: int | None = None
    row: int | None = None
    node: str | None = None
    word: str | None = None
    limit: int = 50


def corpus_texts(path: Path, options: TableOptions) -> Iterator[str]:
    """The texts of a corpus, one by one."""
    return (row.text for row in read_rows(path, options, labels=False))


def index_detectors(
    predictor: Predictor, texts: Iterable[str], progress: Progress | None = None
) -> DetectorIndex:
    """Rank the detectors, and name them all now: the workers then share what was found."""
    index = rank_detectors(predictor, texts, top=TOP, progress=progress)
    index.by_distinctiveness()
    return index


def detectors(model: ServedModel, wanted: Wanted) -> bytes:
    """The whole answer.

    Raises:
        Refusal: nothing is known of the model's detectors, or the model has none.
        UserError: the network does not know the word.
    """
    index = model.detectors
    if index is None:
        raise Refusal(404, model.detectors_note)
    found = list(index.detectors if wanted.word is None else index.find(wanted.word))
    for name in ("layer", "map", "row"):
        asked = getattr(wanted, name)
        if asked is not None:
            found = [detector for detector in found if getattr(detector, name) == asked]
    if wanted.node is not None:
        joined = joined_detectors(model, wanted.node)
        known = index.detectors
        if not joined <= set(known):
            raise Refusal(
                422,
                f"node: there is no node {wanted.node} here; detectors are {known[0]} to "
                f"{known[-1]} (layer:map:row), and folding joins two of the first layer",
            )
        found = [detector for detector in found if detector in joined]
    told = [index.describe(detector) for detector in found[: wanted.limit]]
    return json_bytes({"model": model.name, "detectors": told, "total": len(found)})


def joined_detectors(model: ServedModel, node: str) -> set[Detector]:
    """The detectors that a node, as ``layer:map:row``, joins.

    Those of the first layer are rows before folding, and folding sums two of them into one.
    """
    layer, number, row = map(int, node.split(":"))
    config = model.predictor.artifact.config.model
    joined = {Detector(layer, number, row)}
    if layer == 1 and isinstance(config, DCNNConfig) and config.fold:
        joined.add(Detector(layer, number, row + config.dim // 2))
    return joined
