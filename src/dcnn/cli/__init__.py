"""The command line: parse and call; ``dcnn.commands`` does the work and prints.

A command's module is imported when the command runs; ``dcnn.__main__`` has the exit codes.
"""

from pathlib import Path
from typing import Annotated

import typer

from dcnn import __version__
from dcnn.cli.benchmarks import bench_app
from dcnn.cli.corpora import data_app
from dcnn.cli.experiments import experiment_app
from dcnn.cli.options import (
    READABLE,
    SHARDS,
    Device,
    Encoding,
    Json,
    LabelColumn,
    ModelFolder,
    NoHeader,
    TextColumn,
    WeightColumn,
)
from dcnn.cli.serving import serve
from dcnn.cli.tuning import compare, tune

app = typer.Typer(
    name="dcnn",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The Dynamic Convolutional Neural Network for sentences: train, predict, evaluate, "
    "explain, look at its detectors, export.",
)
app.add_typer(data_app, name="data")
app.add_typer(experiment_app, name="experiment")
app.add_typer(bench_app, name="bench")
app.command()(serve)
app.command()(tune)
app.command()(compare)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to leave the DCNN.")] = Path(
        "demo-model"
    ),
    seed: Annotated[int, typer.Option("--seed", help="Source of all randomness.")] = 0,
) -> None:
    """Train on the built-in corpus beside three baselines, and predict.

    Example: dcnn demo --out demo-model
    """
    from dcnn.commands.demo import run_demo

    run_demo(out, seed)


@app.command()
def train(
    data: Annotated[
        Path,
        typer.Argument(metavar="TRAIN", help=f"Labelled texts: {READABLE}; {SHARDS}."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The model folder to write.")],
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="Examples to select on, as TRAIN; else a part of TRAIN."),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option("--test", help="Examples to score the finished model on, once, as TRAIN."),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    weight_column: WeightColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings as TOML: [text] [model] [training].")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting, e.g. model.dim=64; repeatable."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over TRAIN.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed gives the same model.")
    ] = None,
    device: Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a stopped or killed run left off.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model folder or unfinished run.")
    ] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option("--checkpoint-seconds", min=0, help="Time between checkpoints.")
    ] = 15.0,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="CPU threads; other counts round differently.")
    ] = 1,
) -> None:
    """Train a classifier on labelled texts.

    Lines may be compressed (.gz, .bz2, .xz, .zst, .zip); columns need the extra `data`.

    \b
    Examples:
      dcnn train reviews.csv --out my-model
      dcnn train 'shards/*.parquet' --dev dev.parquet --out my-model
      dcnn train train.tsv --dev dev.tsv --test test.tsv --out my-model --seed 1
      dcnn train tweets.jsonl.gz --out m --set text.tokenizer=tweet --set model.dim=60
      dcnn train reviews.csv --out my-model --resume
    """
    from dcnn.commands.train import TrainOptions, run_train
    from dcnn.data.tables import TableOptions

    columns = TableOptions(text_column, label_column, weight_column, encoding, not no_header)
    run_train(
        TrainOptions(
            data=data,
            out=out,
            dev=dev,
            test=test,
            columns=columns,
            config=config,
            settings=tuple(settings or ()),
            epochs=epochs,
            seed=seed,
            device=device,
            resume=resume,
            overwrite=overwrite,
            checkpoint_seconds=checkpoint_seconds,
            threads=threads,
        )
    )


@app.command()
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
) -> None:
    """Classify texts given as arguments, in a file, or as lines on standard input.

    Prints a line a text: label, probability and the text, separated by tabs; with --json an
    object a line, with the probability of every label.

    \b
    Examples:
      dcnn predict my-model "not a dull moment"
      dcnn predict my-model --input reviews.csv --output labels.tsv
      dcnn predict my-model --input shards --output labels.parquet --skip-bad-shards
      cat lines.txt | dcnn predict my-model --json --top 3
    """
    from dcnn.commands.predict import run_predict
    from dcnn.data.tables import TableOptions

    columns = TableOptions(text_column, encoding=encoding, header=not no_header)
    run_predict(model, texts or [], source, output, columns, as_json, top, skip_bad_shards)


@app.command()
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


@app.command()
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

    \b
    Examples:
      dcnn explain my-model "not a dull moment"
      dcnn explain my-model "not a dull moment" --out graph.svg
      dcnn explain my-model "not a dull moment" --class negative --json
    """
    from dcnn.commands.explain import run_explain

    run_explain(model, text, of_class, out, as_json)


@app.command()
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
    from dcnn.data.tables import TableOptions

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


@app.command()
def export(
    model: ModelFolder,
    out: Annotated[
        Path, typer.Option("--out", help="FILE.onnx, or the name of a new model folder.")
    ],
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="onnx|folder", help="Else the name of --out says it."),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="float32|float16|int8",
            help="How the weights are stored; int8 takes a quarter of the room.",
        ),
    ] = "float32",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file or model folder.")
    ] = False,
) -> None:
    """Write a model as an ONNX file, or as a smaller model folder.

    The ONNX graph takes ids and lengths, of any batch and any length, and gives probabilities; it
    is compared with the model before the file is written (needs the extra onnx). A folder with
    float16 or int8 weights does all that any model folder does.

    \b
    Examples:
      dcnn export my-model --out my-model.onnx
      dcnn export my-model --out my-small-model --dtype int8
      dcnn export my-model --out my-small-model.onnx --dtype int8 --overwrite
    """
    from dcnn.commands.export import run_export

    run_export(model, out, form, dtype, overwrite)
