"""A folder as the place where models are shared: a network drive, or a test's own.

A repository of the Hugging Face hub as the place where a model is shared.

All four files go up in one commit, and come down from one: nobody can meet the weights of one
model beside the words of another. Files that are not part of a model folder are never fetched.


Bringing a model folder to where others find it, and back.

Where is told by a name: ``OWNER/NAME`` is a repository of the Hugging Face hub, and whatever begins
as a path does (``./``, ``../``, ``/``, ``~``) is a folder. Either way four files travel, and what
arrives is loaded, with all the checks of a model folder, before it gets its place. Nothing of it is
ever executed.

"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dcnn import artifact as model_folder
from dcnn.artifact import CARD, Artifact, front_matter, has_front_matter, render_card
from dcnn.errors import FetchError, MissingExtraError, ModelFolderError, StorageError, UserError
from dcnn.files import write_folder_atomically


@dataclass(frozen=True)
class SharedFolder:
    """A model folder that others can read."""

    path: Path

    def put(self, files: dict[str, bytes], message: str) -> str:  # noqa: ARG002
        """Write the files as a model folder, whole or not at all; returns where they are.

        Raises:
            UserError: something else than a model folder is there.
            StorageError: the disk refused; what was there is untouched.
        """
        model_folder.check_destination(self.path, overwrite=True)
        with write_folder_atomically(self.path) as folder:
            for name, content in files.items():
                (folder / name).write_bytes(content)
        return str(self.path)

    def get(self, into: Path) -> str:
        """Copy the files of a model folder, and no others; returns where they are from.

        Raises:
            ModelFolderError: there is no such folder, or no model in it.
            StorageError: a file cannot be copied.
        """
        if not self.path.is_dir():
            raise ModelFolderError(f"{self.path}: no such model folder")
        if not (self.path / model_folder.CONFIG).is_file():
            raise ModelFolderError(
                f"{self.path} holds no model: {model_folder.CONFIG} is missing; "
                "name a folder that `dcnn train` or `dcnn push` has written"
            )
        for name in model_folder.FILES:
            if (self.path / name).is_file():
                try:
                    shutil.copyfile(self.path / name, into / name)
                except OSError as error:
                    raise StorageError(
                        f"{self.path / name} cannot be copied ({error.strerror}); try again"
                    ) from error
        return str(self.path)


def check_options(
    path: Path, revision: str | None, private: bool, message: str | None = None
) -> None:
    """Refuse what only the hub can do.

    Raises:
        UserError: a revision, privacy or a message is asked of a folder, which has no commits.
    """
    asked = {
        "--revision": revision is not None,
        "--private": private,
        "--message": message is not None,
    }
    for option, given in asked.items():
        if given:
            raise UserError(
                f"{option} is for the Hugging Face hub and {path} is a folder; leave it out, or "
                "name OWNER/NAME"
            )


TIMEOUT = 30.0  # seconds without an answer
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


@dataclass(frozen=True)
class Repository:
    """A model repository.

    Attributes:
        name: ``OWNER/NAME``.
        revision: a branch to push to, or a branch, tag or commit to pull; none is the main branch.
        private: whether it must be hidden from others.
    """

    name: str
    revision: str | None = None
    private: bool = False

    def put(self, files: dict[str, bytes], message: str) -> str:
        """Upload the files in one commit, into a repository that is made if need be.

        Returns:
            The address of the commit.

        Raises:
            UserError: nobody is logged in, the token may not write there, or what should be
                private is public.
            FetchError: the hub cannot be reached, or failed.
        """
        _require_client("Pushing to the Hugging Face hub")
        from huggingface_hub import CommitOperationAdd, HfApi, errors, get_token

        if get_token() is None:
            raise UserError(f"pushing to {self.name} needs a token of the hub; {_LOG_IN}")
        api = HfApi()
        with self._named_failures():
            api.create_repo(self.name, private=self.private or None, exist_ok=True)
            if self.private and not api.model_info(self.name, timeout=TIMEOUT).private:
                raise UserError(
                    f"{self.name} is there already and is public, so --private cannot hide it; "
                    "make it private in its settings on the hub, or name another"
                )
            if self.revision is not None:
                api.create_branch(self.name, branch=self.revision, exist_ok=True)
            try:
                commit = api.create_commit(
                    self.name,
                    [CommitOperationAdd(name, content) for name, content in files.items()],
                    commit_message=message,
                    revision=self.revision,
                )
            except ValueError as error:  # the card's metadata is looked at before the upload
                if isinstance(error, errors.HfHubHTTPError):
                    raise
                fault = " ".join(str(error).split())
                raise UserError(
                    f"the hub does not take the model card ({fault:.200}); mend "
                    f"{model_folder.CARD} in the model folder"
                ) from error
        return str(commit.commit_url)

    def get(self, into: Path) -> str:
        """Download the files of a model folder, all of one commit; returns its name.

        Raises:
            UserError: there is no such repository or revision, or nobody is logged in.
            ModelFolderError: it holds no model of this kind.
            FetchError: the hub cannot be reached, or failed.
        """
        _require_client("Pulling from the Hugging Face hub")
        from huggingface_hub import HfApi

        api = HfApi()
        with self._named_failures():
            info = api.model_info(self.name, revision=self.revision, timeout=TIMEOUT)
            there = {file.rfilename for file in info.siblings or ()}
            if model_folder.CONFIG not in there or model_folder.TOKENIZER not in there:
                raise ModelFolderError(
                    f"{self.name} holds no model of dcnn: {model_folder.CONFIG} or "
                    f"{model_folder.TOKENIZER} is missing; name a repository that `dcnn push` made"
                )
            for name in model_folder.FILES:
                if name in there:
                    api.hf_hub_download(self.name, name, revision=info.sha, local_dir=into)
        return f"{self.name} at {(info.sha or '')[:12]}"

    @contextmanager
    def _named_failures(self) -> Iterator[None]:
        """Say in one sentence what the hub, or the way to it, does not give."""
        from huggingface_hub import errors

        # The base of all errors of the library that the client talks HTTP with, whichever it is.
        any_http: type[Exception] = errors.HfHubHTTPError.__bases__[0]
        try:
            yield
        except errors.GatedRepoError as error:
            raise UserError(
                f"{self.name} is open only to those who accept its terms; accept them on its page "
                f"and {_LOG_IN}"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise UserError(
                f"{self.name}: the hub has no such model, or hides it from you; check the name, or "
                f"{_LOG_IN}"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise UserError(
                f"{self.name} has no revision {self.revision!r}; name a branch, a tag or a commit "
                "that it has"
            ) from error
        except errors.HFValidationError as error:
            raise UserError(f"{self.name} is no name that the hub allows ({error})") from error
        except errors.HfHubHTTPError as error:
            raise self._refused(error.response.status_code, error.server_message) from error
        except (any_http, ConnectionError, TimeoutError, errors.LocalEntryNotFoundError) as error:
            reason = " ".join(str(error.__cause__ or error).split())
            raise FetchError(
                f"the Hugging Face hub cannot be reached ({reason:.200}); "
                "check the network and try again"
            ) from error

    def _refused(self, status: int, said: str | None) -> UserError | FetchError:
        match status:
            case 401:
                return UserError(f"the hub does not take your token for {self.name}; {_LOG_IN}")
            case 403:
                return UserError(
                    f"the hub refuses {self.name} to your token ({said or 'forbidden'}); take a "
                    "token that may write there, or name a repository of yours"
                )
        answer = f"{status}: {said}" if said else str(status)
        return FetchError(f"the hub failed on {self.name} ({answer}); try again later")


def _require_client(feature: str) -> None:
    """Say before any work is done that it cannot be done."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise MissingExtraError(feature, "hub") from None


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
        artifact.metadata,
        artifact.dtype,
        artifact.thresholds,
    )
    if there is None or there == render_card(*parts).encode("utf-8", "replace"):
        card = render_card(*parts, repository=repository)
        return card.encode("utf-8", "replace")
    if has_front_matter(there.decode("utf-8", "replace")):
        return there
    metadata = front_matter(name, artifact.config, artifact.metadata, artifact.dtype)
    return f"{metadata}\n\n".encode("utf-8", "replace") + there
