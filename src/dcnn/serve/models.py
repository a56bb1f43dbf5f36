"""The models of a server, loaded once, and what they answer: responses as JSON bytes.

An uploaded file stays in memory: no part of a request is ever a path on this machine. The whole
file is read before the response starts, so that an error in its last line is an error response
instead of half an answer. What a graph shows and where is decided by ``dcnn.inspection.picture``,
as for the SVG. Colours are the page's own; the numbers are the network's.
"""

import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import cast

import numpy as np
from starlette.exceptions import HTTPException

from dcnn.config import DCNNConfig
from dcnn.data.columns import LABEL_NAMES
from dcnn.data.readers import Row, ShardReader, TableOptions, open_table
from dcnn.errors import DataError, UserError
from dcnn.files import COMPRESSIONS
from dcnn.inspection.attribution import node_word_contributions
from dcnn.inspection.detector_ranking import Detector, Progress
from dcnn.inspection.detectors import DetectorIndex, rank_detectors
from dcnn.inspection.explanation import Explanation, compare, explain
from dcnn.inspection.picture import BIASES, OTHERS, Picture, PictureNode, place
from dcnn.inspection.similar import SimilarText, TextIndex
from dcnn.model_card import render_card
from dcnn.predictor import Prediction, Predictor
from dcnn.serve import Limits, schemas
from dcnn.serve.schemas import json_bytes, too_long

# The readers name options of the command line; here they are query parameters.
_PARAMETERS = {
    "--text-column": "text_column",
    "--label-column": "label_column",
    "--encoding ": "encoding=",
    "--no-header": "header=false",
}


@dataclass(frozen=True)
class ServedModel:
    """A model with the name that requests give it."""

    name: str
    predictor: Predictor
    detectors: DetectorIndex | None = None  # with the n-grams of a corpus that activate them
    index: TextIndex | None = None  # of the model folder, if it has one

    def info(self) -> schemas.ModelInfo:
        """Its entry in the response of ``/v1/models``."""
        model = self.predictor.artifact.config.model
        explainable, note = isinstance(model, DCNNConfig), ""
        if not explainable:
            note = f"the model is of the kind {model.kind}, which has no detectors; only dcnn has"
        elif self.detectors is None:
            note = (
                "the detectors' n-grams come from a corpus and this server has none; "
                "start it with: dcnn serve MODEL --corpus TEXTS"
            )
        return {
            "name": self.name,
            "kind": model.kind,
            "classes": self.predictor.classes,
            "vocabulary_size": len(self.predictor.artifact.encoder.vocabulary),
            "backend": self.predictor.backend,
            "explainable": explainable,
            "detectors": self.detectors is not None,
            "detectors_note": note,
            "abstention": self._threshold_info(),
            "index": 0 if self.index is None else len(self.index),
        }

    @cached_property
    def card(self) -> bytes:
        """The response of ``/v1/model``."""
        artifact = self.predictor.artifact
        metadata = dict(artifact.metadata)
        counts = metadata.pop("label_counts", None) or {}
        if "abstention" in metadata:
            metadata["abstention"] = {**metadata["abstention"], "curve": None}
        thresholds = artifact.thresholds or (None,) * len(artifact.classes)
        response: schemas.ModelCard = {
            "model": self.name,
            "card": render_card(self.name, artifact),
            "metadata": metadata,
            "settings": artifact.config.to_flat(),
            "labels": [
                {"label": label, "count": counts.get(str(label)), "threshold": threshold}
                for label, threshold in zip(artifact.classes, thresholds, strict=True)
            ],
            "examples": [
                {"text": text, "label": label if isinstance(label, str) else ", ".join(label)}
                for text, label in artifact.examples
            ],
        }
        return json_bytes(response)

    def _threshold_info(self) -> schemas.ThresholdInfo | None:
        stored = self.predictor.abstention
        if "threshold" not in stored:
            return None
        shown = {name: stored[name] for name in schemas.ThresholdInfo.__annotations__}
        return cast("schemas.ThresholdInfo", shown)

    def check_options(self, options: schemas.PredictOptions) -> None:
        """Raise an error before any work for what the model cannot do."""
        if self.predictor.multi_label and (options.top or 0) > 1:
            raise UserError(
                f"top={options.top} is for single-label models; this model is multi-label and "
                "gives every label that reaches its threshold; the field probabilities has them all"
            )
        if options.abstain_below is not None:
            self.predictor.check_abstains(options.abstain_below)
        self._threshold(options)

    def _threshold(self, options: schemas.PredictOptions) -> float | None:
        """The probability below which a text gets no label; None if every text gets one."""
        if options.abstain or options.target_precision is not None:
            return self.predictor.abstention_threshold(options.target_precision)
        return options.abstain_below

    def _predict(
        self, texts: Sequence[str], options: schemas.PredictOptions
    ) -> list[schemas.PredictionResponse]:
        responses, below = [], self._threshold(options)
        for prediction in self.predictor.predict(texts, below or 0.0):
            response = prediction_response(prediction, may_abstain=below is not None)
            if options.top:
                ranked = prediction.ranked[: options.top]
                response["top"] = [{"label": label, "probability": p} for label, p in ranked]
            responses.append(response)
        return responses

    def predict_texts(self, texts: Sequence[str], options: schemas.PredictOptions) -> bytes:
        """The response of ``/v1/predict``."""
        return json_bytes({"model": self.name, "predictions": self._predict(texts, options)})

    def predict_rows(self, rows: Sequence[Row], options: schemas.PredictOptions) -> bytes:
        """Lines of the response of ``/v1/predict-file``: one JSON object per row."""
        predictions = self._predict([row.text for row in rows], options)
        lines = []
        for row, prediction in zip(rows, predictions, strict=True):
            truth = {} if row.label is None else {"truth": row.label}
            line = {"line": row.place.number, "text": row.text, **truth, **prediction}
            lines.append(json_bytes(line) + b"\n")
        return b"".join(lines)

    def check_words(self, texts: Sequence[str], limits: Limits) -> None:
        """Refuse texts that would take too long: the time grows with the square of their words."""
        encoder = self.predictor.artifact.encoder
        words = sum(len(encoder.tokenizer(text)) for text in texts)
        if words > limits.explain_words:
            raise UserError(
                f"{words:,} {encoder.unit}s are too many to explain; send at most "
                f"{limits.explain_words:,} at once"
            )

    def explain_text(self, text: str, request: schemas.ExplainRequest) -> bytes:
        """One of the explanations in the response of ``/v1/explain``."""
        explanation = explain(self.predictor, text, request.of_class)
        picture = explanation.picture(request.nodes, request.edges, request.ngram, request.coverage)
        similar: list[SimilarText] = []
        if self.index is not None and request.similar:
            similar = self.index.search(self.predictor, text, request.similar)
        return json_bytes(self._explanation_response(explanation, request, picture, similar))

    def compare_texts(self, request: schemas.CompareRequest) -> bytes:
        """The response of ``/v1/compare``."""
        first, second = request.texts
        before = explain(self.predictor, first, request.of_class)
        after = explain(self.predictor, second, before.label)
        comparison = compare(before, after)
        if self.detectors is not None:
            changes = []
            for change in comparison.changes:
                summed = self._summed(Detector(change.layer, change.map, change.row))
                names = map(self.detectors.name, sorted(summed))
                changes.append(replace(change, name=" + ".join(filter(None, names))))
            comparison = replace(comparison, changes=tuple(changes))
        response: schemas.CompareResponse = {
            "model": self.name,
            "explanations": [
                self._explanation_response(
                    one, request, one.picture(request.nodes, request.edges, None, request.coverage)
                )
                for one in (before, after)
            ],
            "comparison": comparison,
        }
        return json_bytes(response)

    def _explanation_response(
        self,
        explanation: Explanation,
        request: schemas.GraphRequest,
        picture: Picture,
        similar: Sequence[SimilarText] = (),
    ) -> schemas.ExplanationResponse:
        prediction = explanation.prediction
        if request.abstain:
            (prediction,) = self.predictor.predict([prediction.text], abstain=True)
        trace = explanation.trace
        return {
            "text": prediction.text,
            **prediction_response(prediction, may_abstain=request.abstain),
            "class": explanation.label,
            "logit": explanation.logit,
            "biases": explanation.biases,
            "char_ngrams": trace.char_ngrams,
            "words": explanation.described_words(),
            "ngrams": explanation.ngrams,
            "deletions": explanation.deletions,
            "replacements": explanation.replacements,
            "similar": list(similar),
            "graph": {
                "layout": place(picture, request.width),
                "word_contributions": _word_contributions(explanation, picture),
                "top_nodes": trace.head_weight.shape[1],
                "coverage": picture.coverage,
                "node_contributions": picture.node_contributions,
                "path_contributions": picture.path_contributions,
            },
        }

    def find_detectors(self, query: schemas.DetectorsQuery) -> bytes:
        """The response of ``/v1/detectors``; an error if there is no corpus, node or word."""
        index = self.detectors
        if index is None:
            raise HTTPException(404, self.info()["detectors_note"])
        known = index.detectors
        found = list(known if query.word is None else index.find(query.word))
        for name in ("layer", "map", "row"):
            if (number := getattr(query, name)) is not None:
                found = [one for one in found if getattr(one, name) == number]
        if query.node is not None:
            summed = self._summed(Detector(*map(int, query.node.split(":"))))
            if not summed <= set(known):
                raise UserError(
                    f"node: there is no node {query.node} here; detectors are {known[0]} to "
                    f"{known[-1]} (layer:map:row), and folding sums two of the first layer"
                )
            found = [one for one in found if one in summed]
        described = [index.describe(one) for one in found[: query.limit]]
        return json_bytes({"model": self.name, "detectors": described, "total": len(found)})

    def _summed(self, node: Detector) -> set[Detector]:
        """The detectors that a node sums: two rows in a first layer that folds, else itself."""
        config = self.predictor.artifact.config.model
        if node.layer == 1 and isinstance(config, DCNNConfig) and config.fold:
            return {node, replace(node, row=node.row + config.dim // 2)}
        return {node}


def _word_contributions(explanation: Explanation, picture: Picture) -> dict[str, list[float]]:
    """Contributions of every word to each drawn node's value, or through an n-gram to the logit."""
    trace = explanation.trace
    found: dict[str, list[float]] = {}
    if picture.has_ngrams:
        ids = [node.id for node in picture.nodes if node.id != BIASES]
        shares = explanation.table.shares
        rest = ids.index(OTHERS) if OTHERS in ids else len(ids)
        rows = [*shares[:rest], *([shares[rest:].sum(axis=0)] if rest < len(ids) else [])]
        return {name: row.round(6).tolist() for name, row in zip(ids, rows, strict=True)}
    for layer in range(1, trace.depth + 1):
        drawn = [n for n in picture.nodes if isinstance(n, PictureNode) and n.layer == layer]
        numbers = np.array([node.number for node in drawn])
        amounts = node_word_contributions(trace, layer, numbers).round(6).tolist()
        found |= dict(zip([node.id for node in drawn], amounts, strict=True))
    return found


def prediction_response(
    prediction: Prediction, *, may_abstain: bool = False
) -> schemas.PredictionResponse:
    """A prediction without its text."""
    response: schemas.PredictionResponse = {
        "label": prediction.label,
        "probability": prediction.probability,
        "probabilities": {str(label): p for label, p in prediction.ranked},
    }
    if prediction.over_threshold is not None:
        response["labels"] = prediction.over_threshold
    if may_abstain:
        response["abstained"] = prediction.abstained
        if prediction.abstained:
            response["label"] = None
    return response


def index_detectors(
    predictor: Predictor, texts: Iterable[str], progress: Progress | None = None
) -> DetectorIndex:
    """Rank the detectors over a corpus, each with its eight n-grams that activate it most."""
    index = rank_detectors(predictor, texts, top=8, progress=progress)
    index.by_distinctiveness()  # names them all now: the workers then share the names
    return index


def read_upload(content: bytes, query: schemas.FileQuery, limits: Limits) -> list[Row]:
    """The rows of an uploaded file."""
    # The name is only ever printed: its last part, shortened, without control characters.
    last = PurePosixPath(query.name.replace("\\", "/")).name
    path = Path("".join(c for c in last if c.isprintable())[-80:] or "the file")
    if path.suffix.lower() in COMPRESSIONS:
        raise UserError(f"{path}: compressed files are not accepted; decompress it first")
    options = TableOptions(
        query.text_column, query.label_column, encoding=query.encoding, header=query.header
    )
    try:
        if query.label_column is None:
            guessed = _label_column(path, content, options)
            # Where labels are missing or of several kinds, there is nothing to compare with.
            with suppress(DataError):
                if guessed is not None:
                    return _rows(path, content, replace(options, label_column=guessed), limits)
        return _rows(path, content, options, limits)
    except DataError as error:
        message = str(error)
        for option, parameter in _PARAMETERS.items():
            message = message.replace(option, parameter)
        raise UserError(message) from None


def _label_column(path: Path, content: bytes, options: TableOptions) -> str | None:
    """The first column with a usual name of labels; a text column may be named like that too."""
    with open_table(path, options, io.BytesIO(content)) as table:
        names = {name.lower(): name for name in table.columns if name != options.text_column}
        return next((names[name] for name in LABEL_NAMES if name in names), None)


def _rows(path: Path, content: bytes, options: TableOptions, limits: Limits) -> list[Row]:
    rows: list[Row] = []
    reader = ShardReader(options, labels=options.label_column is not None)
    for row in reader.rows(path, io.BytesIO(content)):
        if len(row.text) > limits.characters:
            raise too_long(f"{row.place}: the text", row.text, limits)
        if isinstance(row.label, dict):
            row = row._replace(label=max(row.label, key=row.label.__getitem__))
        rows.append(row)
        if len(rows) > limits.file_rows:
            raise UserError(f"{path} has more than {limits.file_rows:,} texts; split the file")
    return rows


def named_folders(arguments: Iterable[str]) -> dict[str, Path]:
    """Model folders by name, from arguments such as ``reviews=models/7`` or just ``models/7``."""
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        folder = Path(rest)
        if not equals or Path(argument).is_dir():  # a folder's own name may have the sign: lr=0.1
            folder = Path(argument)
            name = folder.resolve().name
        if not name or not name.isprintable():
            raise UserError(
                f"{argument!r} gives the model no name that can be printed; write NAME=FOLDER"
            )
        if name in folders:
            raise UserError(f"two models are named {name!r}; rename one of them with NAME=FOLDER")
        folders[name] = folder
    return folders
