"""Learning: ``dcnn train`` and ``dcnn demo``."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import (
    READABLE,
    SHARDS,
    Device,
    Encoding,
    LabelColumn,
    LabelColumns,
    LabelsSeparator,
    NewModelFolder,
    NoHeader,
    TextColumn,
    WeightColumn,
    split_names,
)


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


def train(
    data: Annotated[
        Path,
        typer.Argument(metavar="TRAIN", help=f"Labelled texts: {READABLE}; {SHARDS}."),
    ],
    out: NewModelFolder,
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
    labels_separator: LabelsSeparator = None,
    label_columns: LabelColumns = None,
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
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", metavar="DIR", help="Log curves there for TensorBoard."),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Encode TRAIN on disk and learn from there, in bounded memory; else by its size.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a classifier on labelled texts.

    Lines may be compressed (.gz, .bz2, .xz, .zst, .zip); columns need the extra `data`. A text may
    have several labels: in a list (.jsonl, .parquet), or as --labels-separator or --label-columns
    say.

    \b
    Examples:
      dcnn train reviews.csv --out my-model
      dcnn train 'shards/*.parquet' --dev dev.parquet --out my-model
      dcnn train shards --out my-model --stream --set text.max_size=50000
      torchrun --nproc-per-node 2 -m dcnn train shards --out my-model
      dcnn train train.tsv --dev dev.tsv --test test.tsv --out my-model --seed 1
      dcnn train tweets.jsonl.gz --out m --set text.tokenizer=tweet --set model.dim=60
      dcnn train posts.csv --out my-model --labels-separator '|'
      dcnn train posts.csv --out my-model --label-columns toxic,spam,off-topic
      dcnn train reviews.csv --out my-model --set text.tokenizer=unigram --set text.n_subwords=8000
      dcnn train reviews.csv --out my-model --resume
      dcnn train reviews.csv --out my-model --tensorboard logs
    """
    from dcnn.commands.train import TrainOptions, run_train
    from dcnn.data.readers import TableOptions

    columns = TableOptions(
        text_column,
        label_column,
        weight_column,
        encoding,
        not no_header,
        labels_separator,
        split_names(label_columns),
    )
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
            tensorboard=tensorboard,
            stream=stream,
        )
    )
