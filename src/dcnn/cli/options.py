"""Options that several commands share, written once."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from dcnn.errors import UserError

# One file, or many.
READABLE = ".csv, .tsv, .jsonl, .parquet, .arrow or .feather"
SHARDS = "a folder or a quoted pattern takes many"

ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder, as `dcnn train` writes it.")
]
NewModelFolder = Annotated[Path, typer.Option("--out", help="The model folder to write.")]
TextColumn = Annotated[
    str | None, typer.Option("--text-column", help="Column of the texts; guessed if not given.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", help="Column of the labels; guessed if not given.")
]
LabelsSeparator = Annotated[
    str | None,
    typer.Option(
        "--labels-separator",
        metavar="S",
        help="A label cell holds several labels, or none, parted by S, such as '|'.",
    ),
]
LabelColumns = Annotated[
    str | None,
    typer.Option(
        "--label-columns",
        metavar="A,B,...",
        help="Columns of 0 and 1, one a label (quote a name with a comma).",
    ),
]
WeightColumn = Annotated[
    str | None, typer.Option("--weight-column", help="Column of example weights, if any.")
]
AbstainBelow = Annotated[
    float | None,
    typer.Option(
        "--abstain-below",
        metavar="P",
        min=0,
        max=1,
        help="Give no label to a text whose best probability is under P.",
    ),
]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of the files.")]
NoHeader = Annotated[
    bool,
    typer.Option("--no-header", help="CSV and TSV start with data; columns are then 1, 2, ..."),
]
Device = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to train; auto takes a GPU.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
MarkdownFiles = Annotated[
    list[Path] | None,
    typer.Option("--write", help="Replace the marked block of this Markdown file; repeatable."),
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="The folder of the corpora; else DCNN_DATA, else the user's own."),
]


def split_names(names: str | None) -> tuple[str, ...]:
    """The names of an option that takes several, with commas; quotes keep a comma in a name.

    Raises:
        UserError: the option is given, and names nothing.
    """
    if names is None:
        return ()
    found = tuple(
        name.strip()
        for line in csv.reader([names], skipinitialspace=True)
        for name in line
        if name.strip()
    )
    if not found:
        raise UserError(f"--label-columns {names!r} names no column; give them with commas: a,b")
    return found
