"""Using a model: ``dcnn predict`` and ``dcnn evaluate``."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import (
    READABLE,
    SHARDS,
    AbstainBelow,
    Encoding,
    Json,
    LabelColumn,
    LabelColumns,
    LabelsSeparator,
    ModelFolder,
    NoHeader,
    TextColumn,
    split_names,
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
    abstain_below: AbstainBelow = None,
    labels_separator: Annotated[
        str,
        typer.Option(
            "--labels-separator", metavar="S", help="What parts several labels of a text in a line."
        ),
    ] = "|",
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
        typer.Option(
            "--ray-address", help="Of a running cluster; else RAY_ADDRESS, else this machine."
        ),
    ] = None,
) -> None:
    """Classify texts given as arguments, in a file, or as lines on standard input.

    Prints a line a text: label, probability and the text, separated by tabs; with --json an
    object a line, with the probability of every label. A text that --abstain-below leaves without a
    label has an empty field there, or null. A model that gives several labels prints all that reach
    their thresholds, parted by --labels-separator, and their probabilities.

    With --engine, --output is a folder that gets a Parquet file for each file of --input, named in
    their order. What is there already is not done again, so a stopped or killed command goes on
    when it is repeated.

    \b
    Examples:
      dcnn predict my-model "not a dull moment"
      dcnn predict my-model --input reviews.csv --output labels.tsv
      dcnn predict my-model --input shards --output labels.parquet --skip-bad-shards
      dcnn predict my-model --input reviews.csv --abstain-below 0.8 > labels.tsv
      cat lines.txt | dcnn predict my-model --json --top 3
      dcnn predict my-model --input 'shards/*.parquet' --output scored --engine ray --workers 8
    """
    from dcnn.data.readers import TableOptions

    columns = TableOptions(text_column, encoding=encoding, header=not no_header)
    if engine is not None:
        from dcnn.commands.score import ScoreOptions, run_score
        from dcnn.errors import UserError

        if source is None or output is None or texts or as_json:
            raise UserError(
                "--engine scores files into a folder; give --input and --output, no texts, and "
                "leave out --json"
            )
        run_score(
            ScoreOptions(
                model,
                source,
                output,
                columns,
                top,
                engine,
                workers,
                ray_address,
                abstain_below or 0.0,
            )
        )
        return
    for option, given in (("--workers", workers), ("--ray-address", ray_address)):
        if given is not None:
            from dcnn.errors import UserError

            raise UserError(f"{option} is about Ray; add --engine ray, or leave it out")
    from dcnn.commands.predict import run_predict

    run_predict(
        model,
        texts or [],
        source,
        output,
        columns,
        as_json,
        top,
        skip_bad_shards,
        abstain_below,
        labels_separator,
    )


def evaluate(
    model: ModelFolder,
    data: Annotated[
        Path,
        typer.Argument(metavar="FILE", help=f"Labelled texts: {READABLE}; {SHARDS}."),
    ],
    as_json: Json = False,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    labels_separator: LabelsSeparator = None,
    label_columns: LabelColumns = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    abstain_below: AbstainBelow = None,
    reliability: Annotated[
        Path | None,
        typer.Option(
            "--reliability",
            metavar="FILE.svg",
            help="Draw how often predictions of each confidence are right.",
        ),
    ] = None,
) -> None:
    """Score a model on labelled texts: accuracy, F1, confusion and calibration.

    With --abstain-below also the share of texts that get a label, and of those that get the right
    one. Of a model that gives several labels: micro and macro F1, and the scores of each label.

    \b
    Examples:
      dcnn evaluate my-model test.csv
      dcnn evaluate my-model test.csv --json > scores.json
      dcnn evaluate my-model 'test-*.parquet'
      dcnn evaluate my-model posts.csv --labels-separator '|'
      dcnn evaluate my-model test.csv --abstain-below 0.8 --reliability reliability.svg
    """
    from dcnn.commands.evaluate import EvaluateOptions, run_evaluate
    from dcnn.data.readers import TableOptions

    columns = TableOptions(
        text_column,
        label_column,
        encoding=encoding,
        header=not no_header,
        labels_separator=labels_separator,
        label_columns=split_names(label_columns),
    )
    run_evaluate(EvaluateOptions(model, data, columns, as_json, abstain_below, reliability))
