"""``dcnn tune`` and ``dcnn compare``: good settings, and how good they are beside other models."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import (
    Device,
    Encoding,
    Json,
    LabelColumn,
    NewModelFolder,
    NoHeader,
    TextColumn,
    WeightColumn,
)

Train = Annotated[
    Path,
    typer.Argument(metavar="TRAIN", help="Labelled texts: .csv, .tsv or .jsonl, also compressed."),
]
Dev = Annotated[
    Path | None, typer.Option("--dev", help="Examples to select on; else a part of TRAIN.")
]


def tune(
    data: Train,
    out: NewModelFolder,
    dev: Dev = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.01,
            help="Time in all, over all resumptions; 10 if there is no --trials either.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="How many settings to try in all.")
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="The largest model folder, e.g. 2MB."),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    weight_column: WeightColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="Where the search starts, as TOML.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting that stays as it is; repeatable."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed tries the same settings.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option("--study", help="File of the trials; else in OUT-tune.")
    ] = None,
    device: Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a stopped or killed search left off.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model folder and the search.")
    ] = False,
) -> None:
    """Look for good settings, train with the best, and report.

    The default settings, or those of --config, are the first trial; the others are drawn by
    Optuna, and given up as soon as they lag behind. All are judged on dev alone, so keep test
    examples apart. Leaves the model in OUT, and in OUT-tune a page with charts (report.html), all
    trials (trials.csv) and the best settings (best.toml), from which `dcnn train --config` makes
    the same model again.

    \b
    Examples:
      dcnn tune reviews.csv --out my-model --minutes 30
      dcnn tune train.csv --dev dev.csv --out small-model --max-size 500KB --trials 40
      dcnn tune tweets.jsonl.gz --out m --set text.tokenizer=tweet --set training.epochs=6
      dcnn tune reviews.csv --out my-model --minutes 60 --resume
    """
    from dcnn.commands.tune import TuneOptions, run_tune
    from dcnn.data.readers import TableOptions

    run_tune(
        TuneOptions(
            data=data,
            out=out,
            dev=dev,
            columns=TableOptions(text_column, label_column, weight_column, encoding, not no_header),
            config=config,
            settings=tuple(settings or ()),
            seed=seed,
            minutes=minutes,
            trials=trials,
            max_size=max_size,
            study=study,
            device=device,
            resume=resume,
            overwrite=overwrite,
        )
    )


def compare(
    data: Train,
    test: Annotated[Path, typer.Option("--test", help="Examples to score every model on.")],
    dev: Dev = None,
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            help="Which, with commas: dcnn, max-tdnn, nbow, nb, binb, svm, maxent, fasttext, "
            "setfit; else all that are installed.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=100, help="Runs of every model that has a seed.")
    ] = 1,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Leave the table, a plot and our models in this folder."),
    ] = None,
) -> None:
    """Train several models with their usual settings, and compare them on test.

    Accuracy and macro F1, time of training, size on disk, time for one text and texts a second.
    Models whose accuracy cannot be told from the best one's are marked. Ours hold out a part of
    TRAIN to stop by, unless --dev is given; the others learn from all of TRAIN.

    \b
    Examples:
      dcnn compare train.csv --test test.csv
      dcnn compare train.csv --test test.csv --models dcnn,binb,svm --seeds 5 --out comparison
      dcnn compare train.csv --test test.csv --json > comparison.json
    """
    from dcnn.commands.compare import CompareOptions, run_compare
    from dcnn.data.readers import TableOptions

    run_compare(
        CompareOptions(
            data=data,
            test=test,
            dev=dev,
            columns=TableOptions(
                text_column, label_column, encoding=encoding, header=not no_header
            ),
            models=models,
            seeds=seeds,
            as_json=as_json,
            out=out,
        )
    )
