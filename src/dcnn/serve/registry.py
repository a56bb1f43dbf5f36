"""The models of a server: loaded once, by name, and never read from disk again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException

from dcnn.config import DCNNConfig
from dcnn.data.columns import shown
from dcnn.errors import UserError
from dcnn.inspection.detectors import DetectorIndex
from dcnn.predictor import Predictor
from dcnn.serve.schemas import ModelInfo

NO_CORPUS = (
    "the detectors' n-grams come from a corpus and this server has none; "
    "start it with: dcnn serve MODEL --corpus TEXTS"
)


@dataclass(frozen=True)
class ServedModel:
    """A model with its name.

    Attributes:
        name: as requests give it.
        predictor: the model.
        detectors: the n-grams of a corpus that activate its feature detectors, if there is one.
    """

    name: str
    predictor: Predictor
    detectors: DetectorIndex | None = None

    @property
    def kind(self) -> str:
        """``dcnn``, ``max-tdnn`` or ``nbow``."""
        return self.predictor.artifact.config.model.kind

    @property
    def explainable(self) -> bool:
        """Whether it has a feature graph."""
        return isinstance(self.predictor.artifact.config.model, DCNNConfig)

    @property
    def detectors_note(self) -> str:
        """Why there are no detectors and how to get them; empty where there are."""
        if self.detectors is not None:
            return ""
        if not self.explainable:
            return f"the model is of the kind {self.kind}, which has no detectors; only dcnn has"
        return NO_CORPUS

    def info(self) -> ModelInfo:
        """Its entry in the response of ``/v1/models``."""
        return {
            "name": self.name,
            "kind": self.kind,
            "classes": self.predictor.classes,
            "vocabulary_size": len(self.predictor.artifact.encoder.vocabulary),
            "backend": self.predictor.backend,
            "explainable": self.explainable,
            "detectors": self.detectors is not None,
            "detectors_note": self.detectors_note,
        }


class Registry:
    """Models by name; the first one is the default."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = tuple(models)
        self._by_name = {model.name: model for model in models}

    def get(self, name: str | None) -> ServedModel:
        """The model of that name, or HTTPException."""
        if name is None:
            return self.models[0]
        if (model := self._by_name.get(name)) is None:
            known = ", ".join(self._by_name)
            raise HTTPException(404, f"there is no model {shown(name)}; the models are {known}")
        return model


def named_folders(arguments: Iterable[str]) -> dict[str, Path]:
    """Model folders by name, from arguments such as ``reviews=models/7`` or just ``models/7``.

    Raises:
        UserError: a name is empty, or two models have the same.
    """
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
