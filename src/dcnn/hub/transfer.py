"""Bringing a model folder to where others find it, and back.

Where is told by a name: ``OWNER/NAME`` is a repository of the Hugging Face hub, and whatever begins
as a path does (``./``, ``../``, ``/``, ``~``) is a folder. Either way four files travel, and what
arrives is loaded, with all the checks of a model folder, before it gets its place. Nothing of it is
ever executed.
"""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dcnn import artifact as model_folder
from dcnn.artifact import CARD, Artifact
from dcnn.errors import ModelFolderError, UserError
from dcnn.files import write_folder_atomically
from dcnn.hub.folders import SharedFolder, check_options
from dcnn.hub.hugging_face import Repository
from dcnn.model_card import front_matter, has_front_matter, render_card

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


class Place(Protocol):
    """Where models are shared."""

    def put(self, files: dict[str, bytes], message: str) -> str:
        """Take the files of a model folder, all or none; returns where they are now."""
        ...

    def get(self, into: Path) -> str:
        """Leave the files of a model folder in ``into``; returns where they are from."""
        ...


@dataclass(frozen=True)
class Pulled:
    """A model that has arrived.

    Attributes:
        path: its folder.
        origin: where it is from; of the hub, with the commit.
        artifact: the model.
    """

    path: Path
    origin: str
    artifact: Artifact


def push(
    model: str | Path,
    to: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Bring a model folder to the hub, or to a shared folder.

    >>> to = push("my-model", "./shared/my-model")  # or "me/my-model", on the hub

    Args:
        model: the model folder.
        to: ``OWNER/NAME``, or a folder that begins with ``./``, ``../``, ``/`` or ``~``.
        private: whether the repository must be hidden from others.
        revision: a branch of the repository, made if need be; none is the main one.
        message: of the commit; a folder has none.

    Returns:
        Where it is now.

    Raises:
        ModelFolderError: ``model`` is not a whole, readable model folder.
        UserError: the name or the token will not do.
        FetchError: the hub cannot be reached, or failed.
    """
    place = _place(to, revision, private, message)
    model = Path(model)
    artifact = model_folder.load(model)
    files = {
        name: (model / name).read_bytes() for name in model_folder.FILES if (model / name).is_file()
    }
    repository = to if isinstance(place, Repository) else ""
    files[CARD] = _card(model.resolve().name, artifact, files.get(CARD), repository)
    return place.put(files, message or f"Push {model.resolve().name}")


def pull(
    source: str, out: str | Path, *, revision: str | None = None, overwrite: bool = False
) -> Pulled:
    """Bring a model from the hub, or from a shared folder, to ``out``.

    >>> classes = pull("./shared/my-model", "my-copy").artifact.classes

    Args:
        source: ``OWNER/NAME``, or a folder that begins with ``./``, ``../``, ``/`` or ``~``.
        out: the model folder to write.
        revision: a branch, tag or commit; none is the newest.
        overwrite: whether a model folder at ``out`` may be replaced.

    Raises:
        ModelFolderError: what is there is no model, or is damaged; nothing was written.
        UserError: the name, the revision or the place will not do.
        FetchError: the hub cannot be reached, or failed; nothing was written.
        StorageError: the disk refused; what was at ``out`` is untouched.
    """
    place = _place(source, revision, private=False)
    out = Path(out)
    model_folder.check_destination(out, overwrite)
    with tempfile.TemporaryDirectory() as temporary:
        arrived = Path(temporary)
        origin = place.get(arrived)
        try:
            artifact = model_folder.load(arrived)
        except ModelFolderError as error:
            fault = str(error).replace(f"{arrived}/", "").replace(str(arrived), "it")
            raise ModelFolderError(f"{origin} cannot be used: {fault}") from error
        with write_folder_atomically(out) as folder:
            for name in model_folder.FILES:
                if (arrived / name).is_file():
                    (folder / name).write_bytes((arrived / name).read_bytes())
    return Pulled(out, origin, artifact)


def _place(name: str, revision: str | None, private: bool, message: str | None = None) -> Place:
    if name.startswith((".", "~")) or Path(name).is_absolute():
        path = Path(name).expanduser()
        check_options(path, revision, private, message)
        return SharedFolder(path)
    if not _REPOSITORY.fullmatch(name):
        raise UserError(
            f"{name!r} is neither OWNER/NAME, as the Hugging Face hub names models, nor a folder; "
            "begin a folder with ./ or /"
        )
    return Repository(name, revision, private)


def _card(name: str, artifact: Artifact, there: bytes | None, repository: str) -> bytes:
    """The card that travels: a new one, or what somebody has written, with metadata at least."""
    parts = (
        name,
        artifact.config,
        artifact.classes,
        artifact.facts,
        artifact.dtype,
        artifact.thresholds,
    )
    if there is None or there == render_card(*parts).encode("utf-8", "replace"):
        card = render_card(*parts, repository=repository)
        return card.encode("utf-8", "replace")
    if has_front_matter(there.decode("utf-8", "replace")):
        return there
    metadata = front_matter(name, artifact.config, artifact.facts, artifact.dtype)
    return f"{metadata}\n\n".encode("utf-8", "replace") + there
