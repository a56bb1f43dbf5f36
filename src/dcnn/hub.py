"""Push a model folder to where others find it, and pull one from there.

The name decides where: ``OWNER/NAME`` is a repository of the Hugging Face hub, and what begins
like a path (``./``, ``../``, ``/``, ``~``) is a folder, such as one on a network drive. Only the
four files of a model folder are transferred, never texts that it may hold, on the hub in one
commit, so that weights and tokenizer always belong together. A pulled model is loaded, with all the
checks of a model folder, before it is renamed to its place. Nothing of it is ever executed.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dcnn import artifact as model_folder
from dcnn.artifact import CARD, Artifact
from dcnn.errors import FetchError, ModelFolderError, StorageError, UserError, needs_extra
from dcnn.files import write_folder_atomically
from dcnn.model_card import front_matter, has_front_matter, render_card

TIMEOUT = 30.0  # seconds without an answer
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"

Files = dict[str, bytes]  # of a model folder, by name


@dataclass(frozen=True)
class Pulled:
    """A model that was pulled."""

    path: Path
    origin: str  # where it is from; for the hub, with the commit
    artifact: Artifact


def push(
    model: str | Path,
    to: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Upload a model folder to the hub, or copy it to a shared folder; where it is then.

    >>> to = push("my-model", "./shared/my-model")  # or "me/my-model", on the hub

    Args:
        model: the model folder.
        to: ``OWNER/NAME``, or a folder that begins with ``./``, ``../``, ``/`` or ``~``.
        private: whether the repository must be hidden from others.
        revision: a branch of the repository, created if needed; None is the main one.
        message: of the commit, whose address is returned.

    Raises:
        ModelFolderError: ``model`` is not a complete, readable model folder.
        UserError: the name, the token or an option is wrong, or the folder holds something else.
        FetchError: the hub cannot be reached, or failed.
        StorageError: the disk refused; what was there is untouched.
    """
    folder = _shared_folder(to, revision=revision, private=private, message=message)
    model = Path(model)
    name = model.resolve().name
    artifact = model_folder.load(model)
    files = _read(model)
    files[CARD] = _card(name, artifact, files.get(CARD), repository="" if folder else to)
    if folder is None:
        return _upload(to, files, message or f"Push {name}", revision, private)
    model_folder.check_destination(folder, overwrite=True)
    with write_folder_atomically(folder) as temporary:
        for file, content in files.items():
            (temporary / file).write_bytes(content)
    return str(folder)


def pull(
    source: str, out: str | Path, *, revision: str | None = None, overwrite: bool = False
) -> Pulled:
    """Download a model from the hub, or copy it from a shared folder, to ``out``.

    >>> classes = pull("./shared/my-model", "my-copy").artifact.classes

    Args:
        source: ``OWNER/NAME``, or a folder that begins with ``./``, ``../``, ``/`` or ``~``.
        out: the model folder to write.
        revision: a branch, tag or commit; None is the newest.
        overwrite: whether a model folder at ``out`` may be replaced.

    Raises:
        ModelFolderError: the source holds no model, or a damaged one; nothing was written.
        UserError: the name, the revision or ``out`` is wrong.
        FetchError: the hub cannot be reached, or failed; nothing was written.
        StorageError: the disk refused; what was at ``out`` is untouched.
    """
    folder = _shared_folder(source, revision=revision)
    out = Path(out)
    model_folder.check_destination(out, overwrite)
    origin, files = (str(folder), _read(folder)) if folder else _download(source, revision)
    with write_folder_atomically(out) as temporary:
        for file, content in files.items():
            (temporary / file).write_bytes(content)
        try:
            artifact = model_folder.load(temporary)
        except ModelFolderError as error:
            fault = str(error).replace(f"{temporary}/", "").replace(str(temporary), "it")
            raise ModelFolderError(f"{origin} cannot be used: {fault}") from error
    return Pulled(out, origin, artifact)


def _shared_folder(name: str, **options: object) -> Path | None:
    """The folder that ``name`` means, which takes no options; None for a repository of the hub."""
    if name.startswith((".", "~")) or Path(name).is_absolute():
        path = Path(name).expanduser()
        for option, value in options.items():
            if value:
                raise UserError(
                    f"--{option} is for the Hugging Face hub and {path} is a folder; leave it out, "
                    "or name OWNER/NAME"
                )
        return path
    if not _REPOSITORY.fullmatch(name):
        raise UserError(
            f"{name!r} is neither OWNER/NAME, as the Hugging Face hub names models, nor a folder; "
            "begin a folder with ./ or /"
        )
    return None


def _card(name: str, artifact: Artifact, current: bytes | None, repository: str) -> bytes:
    """The card to push: a generated one, or one edited by hand, with metadata added if needed."""
    if current is None or current == render_card(name, artifact).encode("utf-8", "replace"):
        shared = replace(artifact, examples=())  # which are left out
        return render_card(name, shared, repository).encode("utf-8", "replace")
    if has_front_matter(current.decode("utf-8", "replace")):
        return current
    return f"{front_matter(name, artifact)}\n\n".encode("utf-8", "replace") + current


def _read(folder: Path) -> Files:
    if not folder.is_dir():
        raise ModelFolderError(f"{folder}: no such model folder")
    if not (folder / model_folder.CONFIG).is_file():
        raise ModelFolderError(
            f"{folder} holds no model: {model_folder.CONFIG} is missing; "
            "name a folder that `dcnn train` or `dcnn push` has written"
        )
    present = [folder / name for name in model_folder.FILES if (folder / name).is_file()]
    try:
        return {path.name: path.read_bytes() for path in present}
    except OSError as error:
        reason = f"{error.filename} cannot be copied ({error.strerror}); try again"
        raise StorageError(reason) from error


def _upload(name: str, files: Files, message: str, revision: str | None, private: bool) -> str:
    """Commit the files to the repository, which is created if needed; the commit's address."""
    with needs_extra("Pushing to the Hugging Face hub", "hub"):
        from huggingface_hub import CommitOperationAdd, HfApi, errors, get_token

    if get_token() is None:
        raise UserError(f"pushing to {name} needs a token of the hub; {_LOG_IN}")
    api = HfApi()
    with _hub_errors(name, revision):
        api.create_repo(name, private=private or None, exist_ok=True)
        if private and not api.model_info(name, timeout=TIMEOUT).private:
            raise UserError(
                f"{name} exists and is public, so --private cannot hide it; make it private in its "
                "settings on the hub, or name another"
            )
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        operations = [CommitOperationAdd(file, content) for file, content in files.items()]
        try:
            commit = api.create_commit(name, operations, commit_message=message, revision=revision)
        except ValueError as error:  # the card's metadata is checked before the upload
            if isinstance(error, errors.HfHubHTTPError):
                raise
            fault = f"the hub does not accept the model card ({' '.join(str(error).split()):.200})"
            raise UserError(f"{fault}; fix {CARD} in the model folder") from error
    return str(commit.commit_url)


def _download(name: str, revision: str | None) -> tuple[str, Files]:
    """The files of a model folder, all of one commit, and that commit's name."""
    with needs_extra("Pulling from the Hugging Face hub", "hub"):
        from huggingface_hub import HfApi

    api = HfApi()
    with _hub_errors(name, revision), tempfile.TemporaryDirectory() as folder:
        info = api.model_info(name, revision=revision, timeout=TIMEOUT)
        present = {file.rfilename for file in info.siblings or ()}
        if model_folder.CONFIG not in present or model_folder.TOKENIZER not in present:
            raise ModelFolderError(
                f"{name} holds no model of dcnn: {model_folder.CONFIG} or "
                f"{model_folder.TOKENIZER} is missing; name a repository that `dcnn push` made"
            )
        for file in sorted(present.intersection(model_folder.FILES)):
            api.hf_hub_download(name, file, revision=info.sha, local_dir=folder)
        files = _read(Path(folder))
    return f"{name} at {(info.sha or '')[:12]}", files


@contextmanager
def _hub_errors(name: str, revision: str | None) -> Iterator[None]:
    """Turn the client's errors into one sentence each, with the remedy."""
    from huggingface_hub import errors

    # The base class of all errors of the HTTP library that the client uses, whichever it is.
    any_http: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except errors.GatedRepoError as error:
        terms = f"{name} is open only to those who accept its terms; accept them on its page and"
        raise UserError(f"{terms} {_LOG_IN}") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{name}: the hub has no such model, or hides it from you; check the name, or {_LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(
            f"{name} has no revision {revision!r}; name a branch, a tag or a commit that it has"
        ) from error
    except errors.HFValidationError as error:
        raise UserError(f"{name} is no name that the hub allows ({error})") from error
    except errors.HfHubHTTPError as error:
        status, reason = error.response.status_code, error.server_message
        if status == 401:
            raise UserError(f"the hub does not accept your token for {name}; {_LOG_IN}") from error
        if status == 403:
            raise UserError(
                f"the hub refuses {name} to your token ({reason or 'forbidden'}); use a token with "
                "write access, or name a repository of yours"
            ) from error
        answer = f"{status}: {reason}" if reason else str(status)
        raise FetchError(f"the hub failed on {name} ({answer}); try again later") from error
    except (any_http, ConnectionError, TimeoutError, errors.LocalEntryNotFoundError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        message = f"the Hugging Face hub cannot be reached ({reason:.200})"
        raise FetchError(f"{message}; check the network and try again") from error
