"""The models of a server: loaded once, named, and never looked up on disk again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcnn.config import DCNNConfig
from dcnn.errors import UserError
from dcnn.inspection.detectors import DetectorIndex
from dcnn.predictor import Predictor
from dcnn.serve.refusals import unknown_model

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
        detectors: what its detectors answer to, if that is known.
    """

    name: str
    predictor: Predictor
    detectors: DetectorIndex | None = None

    @property
    def kind(self) -> str:
        """``dcnn``, ``max-tdnn`` or ``nbow``."""
        return self.predictor.artifact.config.model.kind

    @property
    def explains(self) -> bool:
        """Whether it has a feature graph."""
        return isinstance(self.predictor.artifact.config.model, DCNNConfig)

    @property
    def detectors_note(self) -> str:
        """Why there are no detectors, and how to get them; empty where there are."""
        if self.detectors is not None:
            return ""
        if not self.explains:
            return f"the model is of the kind {self.kind}, which has no detectors; only dcnn has"
        return NO_CORPUS


class Registry:
    """Models by name; the first one answers where none is named."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = tuple(models)
        self._by_name = {model.name: model for model in models}

    def get(self, name: str | None) -> ServedModel:
        """The model of that name.

        Raises:
            Refusal: there is none.
        """
        if name is None:
            return self.models[0]
        if (model := self._by_name.get(name)) is None:
            raise unknown_model(name, list(self._by_name))
        return model


def named_folders(arguments: Iterable[str]) -> dict[str, Path]:
    """Model folders by name, from arguments such as ``reviews=models/7`` or just ``models/7``.

    Raises:
        UserError: a name is empty, or two models have the same.
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        given, equals, rest = argument.partition("=")
        # A folder whose own name has the sign, such as lr=0.1, is a folder.
        named = bool(equals) and not Path(argument).is_dir()
        folder = Path(rest if named else argument)
        name = given if named else folder.resolve().name
        if not name or not name.isprintable():
            raise UserError(
                f"{argument!r} gives the model no name that can be printed; write NAME=FOLDER"
            )
        if name in folders:
            raise UserError(
                f"two models are named {name!r}; name one of them otherwise, as NAME=FOLDER"
            )
        folders[name] = folder
    return folders
