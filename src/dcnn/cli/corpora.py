"""``dcnn data``: the corpora of the paper's experiments."""

from typing import Annotated

import typer

from dcnn.cli.options import DataFolder

data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, fetch and verify the corpora of the paper's experiments.",
)


@data_app.command("list")
def list_corpora(data: DataFolder = None) -> None:
    """Show the corpora: what they are, where they belong, and whether they are there.

    Example: dcnn data list --data corpora
    """
    from dcnn.commands.data import run_list

    run_list(data)


@data_app.command("fetch")
def fetch_corpora(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="sst, trec, twitter, glove, or all.")
    ],
    data: DataFolder = None,
) -> None:
    """Download corpora from where their authors keep them, and check every byte.

    A download that was cut goes on where it ended. What is there already is left alone.

    \b
    Examples:
      dcnn data fetch sst trec
      dcnn data fetch all --data corpora
    """
    from dcnn.commands.data import run_fetch

    run_fetch(names, data)


@data_app.command("verify")
def verify_corpora(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Which corpora; else all that are there."),
    ] = None,
    data: DataFolder = None,
) -> None:
    """Check sizes, checksums and the number of examples of the corpora, a line a file.

    \b
    Examples:
      dcnn data verify
      dcnn data verify twitter --data corpora
    """
    from dcnn.commands.data import run_verify

    run_verify(names or [], data)
