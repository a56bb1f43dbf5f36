"""``dcnn push`` and ``dcnn pull``: share a model through the Hugging Face Hub or a folder."""

from typing import Annotated

from typer import Argument, Option

from dcnn import hub
from dcnn.cli.console import ModelFolder, NewModelFolder, Overwrite

Remote = Annotated[str, Argument(metavar="OWNER/NAME")]


def push(
    model: ModelFolder,
    to: Remote,
    private: Annotated[bool, Option("--private")] = False,
    revision: str | None = None,
    message: str | None = None,
) -> None:
    """Upload a model folder to the Hugging Face Hub, or copy it to a shared folder.

    The Hub needs the extra `hub` and a token: log in once with `hf auth login`, or set HF_TOKEN.
    The model card, with the metadata that the Hub reads, is generated from the run; a card that
    you have edited is kept.
    """
    place = hub.push(model, to, private=private, revision=revision, message=message)
    print(f"{model} is at {place}")


def pull(
    source: Remote, out: NewModelFolder, revision: str | None = None, overwrite: Overwrite = False
) -> None:
    """Download a model from the Hugging Face Hub, or copy it from a shared folder.

    The model is checked before it is put in place, and no code of it is executed. The Hub needs
    the extra `hub`.
    """
    pulled = hub.pull(source, out, revision=revision, overwrite=overwrite)
    kind, labels = pulled.artifact.config.model.kind, len(pulled.artifact.classes)
    print(f"{pulled.origin} is in {out}: {kind}, {labels} labels; try: dcnn predict {out} 'a text'")
