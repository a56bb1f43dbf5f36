"""The state of an unfinished training run on disk, in one file that is replaced as a whole.

Tensors and a JSON description, in safetensors: nothing is pickled. A run killed at any moment
leaves the last complete checkpoint behind, and continues from there to the same weights.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from dcnn.config import Config
from dcnn.errors import UserError
from dcnn.files import write_atomically

FORMAT_VERSION = 2


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run keeps its state, and what makes it that run.

    ``identity`` has the settings and a fingerprint of the data as flat plain values; a checkpoint
    written under another one is refused.
    """

    path: Path
    identity: dict[str, Any]
    seconds: float = 15.0  # between writes
    resume: bool = False  # whether to continue from the file, if it is there

    def save(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Replace the file by this state."""
        description = {"version": FORMAT_VERSION, "identity": self.identity, "progress": progress}
        state = {name: tensor.contiguous() for name, tensor in tensors.items()}
        with write_atomically(self.path) as stream:
            stream.write(safetensors.torch.save(state, {"description": json.dumps(description)}))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and progress, or none where there is no checkpoint."""
        if not self.path.exists():
            return None
        try:
            with safetensors.safe_open(self.path, "pt") as stream:
                description = json.loads((stream.metadata() or {})["description"])
                tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
                self._check_identity(description)
                return tensors, description["progress"]
        except (
            safetensors.SafetensorError,
            OSError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            json.JSONDecodeError,
        ) as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> UserError:
        """The error of a checkpoint whose content makes no sense."""
        return UserError(
            f"{self.path} is not a readable checkpoint ({error}); "
            "delete it and train from the start, without --resume"
        )

    def _check_identity(self, description: dict[str, Any]) -> None:
        here = json.loads(json.dumps(self.identity))
        # A setting that did not exist when the file was written had the value of its default.
        defaults = Config().to_flat()
        new = {name: defaults[name] for name in here if name in defaults}
        there = new | description["identity"]
        differences = [
            f"{name} was {there.get(name)!r} and is now {here.get(name)!r}"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        ]
        if description["version"] != FORMAT_VERSION:
            differences = [f"its format version is {description['version']!r}"]
        if differences:
            raise UserError(
                f"{self.path} belongs to another run: {'; '.join(differences)}; repeat the command "
                "as it was, or train from the start, with --overwrite instead of --resume"
            )
