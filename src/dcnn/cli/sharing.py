"""Sharing a model: ``dcnn push`` and ``dcnn pull``."""

from typing import Annotated

import typer

from dcnn.cli.options import ModelFolder, NewModelFolder

Place = Annotated[
    str,
    typer.Argument(
        metavar="OWNER/NAME",
        help="OWNER/NAME on the Hugging Face hub, or a folder that begins with ./ or /.",
    ),
]


def push(
    model: ModelFolder,
    to: Place,
    private: Annotated[
        bool, typer.Option("--private", help="Hide it from others; refused where it is public.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="A branch, made if need be; else the main one.")
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="Of the commit, on the hub.")
    ] = None,
) -> None:
    """Bring a model folder to the Hugging Face hub, or to a shared folder.

    The hub needs the extra hub, and a token: log in once with `hf auth login`, or set HF_TOKEN. The
    model card, with the metadata that the hub reads, is made from the run; one that you have
    edited is kept.

    \b
    Examples:
      dcnn push my-model me/my-model
      dcnn push my-model me/my-model --private --message "Trained on the May reviews"
      dcnn push my-model /mnt/models/my-model
    """
    from dcnn.commands.share import run_push

    run_push(model, to, private, revision, message)


def pull(
    source: Place,
    out: NewModelFolder,
    revision: Annotated[
        str | None, typer.Option("--revision", help="A branch, tag or commit; else the newest.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model folder that is there.")
    ] = False,
) -> None:
    """Bring a model here from the Hugging Face hub, or from a shared folder.

    It is checked before it gets its place, and nothing of it is executed. The hub needs the extra
    hub.

    \b
    Examples:
      dcnn pull me/my-model --out my-model
      dcnn pull me/my-model --revision v2 --out my-model --overwrite
      dcnn pull /mnt/models/my-model --out my-model
    """
    from dcnn.commands.share import run_pull

    run_pull(source, out, revision, overwrite)
