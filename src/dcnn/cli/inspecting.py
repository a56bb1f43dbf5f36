"""Looking inside a model: ``dcnn explain`` and ``dcnn detectors``."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import READABLE, SHARDS, Encoding, Json, ModelFolder, NoHeader, TextColumn


def explain(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to explain.")],
    of_class: Annotated[
        str | None,
        typer.Option("--class", metavar="C", help="The label to explain; else the predicted one."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the feature graph: .svg, .png, .html, .json or .graphml."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show why a text gets its label: words, n-grams, deletions, the feature graph.

    Prints the label, the sentence with its words coloured by relevance (with numbers where the
    output is no terminal), the strongest n-grams, and the words whose deletion changes the label.
    A picture holds the part of the graph that carries the decision; .json and .graphml hold all.
    Where a text may have several labels, each that it is given is explained.

    \b
    Examples:
      dcnn explain my-model "not a dull moment"
      dcnn explain my-model "not a dull moment" --out graph.svg
      dcnn explain my-model "not a dull moment" --class negative --json
    """
    from dcnn.commands.explain import run_explain

    run_explain(model, text, of_class, out, as_json)


def detectors(
    model: ModelFolder,
    corpus: Annotated[
        Path,
        typer.Option("--corpus", help=f"Texts: {READABLE}, or .txt with one a line; {SHARDS}."),
    ],
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    layer: Annotated[
        int | None, typer.Option("--layer", min=1, help="Detectors of this layer only.")
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, max=200, help="How many n-grams of each.")
    ] = 5,
    find: Annotated[
        str | None, typer.Option("--find", metavar="WORD", help="Those that react to a word.")
    ] = None,
    of_class: Annotated[
        str | None, typer.Option("--class", metavar="C", help="Those that speak for a label.")
    ] = None,
    like: Annotated[
        str | None, typer.Option("--like", metavar="TEXT", help="Those that fire on a text.")
    ] = None,
    detector: Annotated[
        str | None, typer.Option("--detector", metavar="L:MAP:ROW", help="This one.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, help="How many detectors; else 10 on the screen, all in files."
        ),
    ] = None,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write them to a file: .json, .html or .md.")
    ] = None,
) -> None:
    """Show which n-grams of a corpus each feature detector reacts to, and what it stands for.

    A detector of the first layer is one row of one map; it ranks all n-grams of its width. One of
    a higher layer ranks what it really saw, which may be separated words. A name such as
    "_ not _" tells what a detector's n-grams hold more of than the corpus does, and where. The
    numbers beside the classes are what its n-grams carry of their logits. The corpus is read once,
    however large it is.

    \b
    Examples:
      dcnn detectors my-model --corpus reviews.csv
      dcnn detectors my-model --corpus 'shards/*.parquet' --find not --layer 1
      dcnn detectors my-model --corpus lines.txt.gz --class positive --top 10
      dcnn detectors my-model --corpus lines.txt.gz --like "not a dull moment" --json
      dcnn detectors my-model --corpus reviews.csv --out detectors.html
    """
    from dcnn.commands.detectors import DetectorsOptions, run_detectors
    from dcnn.data.readers import TableOptions

    run_detectors(
        DetectorsOptions(
            model=model,
            corpus=corpus,
            columns=TableOptions(text_column, encoding=encoding, header=not no_header),
            layer=layer,
            top=top,
            find=find,
            of_class=of_class,
            like=like,
            detector=detector,
            limit=limit,
            as_json=as_json,
            out=out,
        )
    )
