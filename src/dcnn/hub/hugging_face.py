"""A repository of the Hugging Face hub as the place where a model is shared.

All four files go up in one commit, and come down from one: nobody can meet the weights of one
model beside the words of another. Files that are not part of a model folder are never fetched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dcnn import artifact as model_folder
from dcnn.errors import FetchError, MissingExtraError, ModelFolderError, UserError

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
