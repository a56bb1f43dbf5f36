"""Using a model: ``dcnn predict`` and ``dcnn evaluate``."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import (
    READABLE,
    SHARDS,
    Encoding,
    Json,
    LabelColumn,
    ModelFolder,
    NoHeader,
    TextColumn,
)


def predict(
    model: ModelFolder,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to classify.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", help=f"Texts: {READABLE}, or .txt with one a line; {SHARDS}."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Write there instead of to the screen; .parquet, .arrow and .feather get columns.",
        ),
    ] = None,
    skip_bad_shards: Annotated[
        bool,
        typer.Option(
            "--skip-bad-shards",
            help="Name a file of --input that cannot be read, go on, and end with exit code 1.",
        ),
    ] = False,
    as_json: Json = False,
    top: Annotated[int, typer.Option("--top", min=1, help="How many labels of each text.")] = 1,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="local|ray",
            help="Score file after file into the folder --output, here or on Ray workers.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Of Ray, a CPU each; else one a CPU.")
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", help="Of a running cluster; else this machine alone."),
    ] = None,
) -> None:
    """Classify texts given as arguments, in a file, or as lines on standard input.

    Prints a line a text: label, probability and the text, separated by tabs; with --json an
    object a line, with the probability of every label.

    With --engine, --output is a folder that gets a Parquet file for each file of --input, named in
    their order. What is there already is not done again, so a stopped or killed command goes on
    when it is repeated.

    \b
    Examples:
      dcnn predict my-model "not a dull moment"
      dcnn predict my-model --input reviews.csv --output labels.tsv
      dcnn predict my-model --input shards --output labels.parquet --skip-bad-shards
      cat lines.txt | dcnn predict my-model --json --top 3
      dcnn predict my-model --input 'shards/*.parquet' --output scored --engine ray --workers 8
    """
    from dcnn.data.tables import TableOptions

    columns = TableOptions(text_column, encoding=encoding, header=not no_header)
    if engine is not None:
        from dcnn.commands.score import ScoreOptions, run_score
        from dcnn.errors import UserError

        if source is None or output is None or texts or as_json:
            raise UserError(
                "--engine scores files into a folder; give --input and --output, no texts, and "
                "leave out --json"
            )
        run_score(ScoreOptions(model, source, output, columns, top, engine, workers, ray_address))
        return
    for option, given in (("--workers", workers), ("--ray-address", ray_address)):
        if given is not None:
            from dcnn.errors import UserError

            raise UserError(f"{option} is about Ray; add --engine ray, or leave it out")
    from dcnn.commands.predict import run_predict

    run_predict(model, texts or [], source, output, columns, as_json, top, skip_bad_shards)


def evaluate(
    model: ModelFolder,
    data: Annotated[
        Path,
        typer.Argument(metavar="FILE", help=f"Labelled texts: {READABLE}; {SHARDS}."),
    ],
    as_json: Json = False,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
) -> None:
    """Score a model on labelled texts: accuracy, F1, confusion and calibration.

    \b
    Examples:
      dcnn evaluate my-model test.csv
      dcnn evaluate my-model test.csv --json > scores.json
      dcnn evaluate my-model 'test-*.parquet'
    """
    from dcnn.commands.evaluate import run_evaluate
    from dcnn.data.tables import TableOptions

    columns = TableOptions(text_column, label_column, encoding=encoding, header=not no_header)
    run_evaluate(model, data, columns, as_json)
