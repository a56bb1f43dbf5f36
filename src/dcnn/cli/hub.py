"""``dcnn push`` and ``dcnn pull``: share a model through the Hugging Face Hub or a folder."""

from typing import Annotated

from typer import Argument, Option

from dcnn import hub
from dcnn.cli.console import ModelFolder, NewModelFolder

_REMOTE = "OWNER/NAME on the Hugging Face Hub, or a folder that begins with ./ or /."
Remote = Annotated[str, Argument(metavar="OWNER/NAME", help=_REMOTE)]


def push(
    model: ModelFolder,
    to: Remote,
    private: Annotated[
        bool, Option("--private", help="Create a private repository; refused if it is public.")
    ] = False,
    revision: Annotated[
        str | None, Option(help="A branch, created if missing; by default the main one.")
    ] = None,
    message: Annotated[str | None, Option(help="Commit message on the Hub.")] = None,
) -> None:
    """Upload a model folder to the Hugging Face Hub, or copy it to a shared folder.

    The Hub needs the extra `hub` and a token: log in once with `hf auth login`, or set HF_TOKEN.
    The model card, with the metadata that the Hub reads, is generated from the run; a card that
    you have edited is kept.
    """
    place = hub.push(model, to, private=private, revision=revision, message=message)
    print(f"{model} is at {place}")


def pull(
    source: Remote,
    out: NewModelFolder,
    revision: Annotated[
        str | None, Option(help="A branch, tag or commit; by default the newest.")
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace an existing model folder.")
    ] = False,
) -> None:
    """Download a model from the Hugging Face Hub, or copy it from a shared folder.

    The model is checked before it is put in place, and no code of it is executed. The Hub needs
    the extra `hub`.
    """
    pulled = hub.pull(source, out, revision=revision, overwrite=overwrite)
    kind, labels = pulled.artifact.config.model.kind, len(pulled.artifact.classes)
    print(f"{pulled.origin} is in {out}: {kind}, {labels} labels; try: dcnn predict {out} 'a text'")
