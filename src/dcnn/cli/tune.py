"""``dcnn tune``: search for better settings, train with the best again, and report.

The search uses dev alone; ``MODEL-tune`` beside the model holds the study and the report.
"""

import datetime
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.cli import console as cli
from dcnn.config import Config, parse_setting
from dcnn.data.readers import TableOptions, read_examples
from dcnn.data.split import hold_out
from dcnn.errors import (
    DcnnError,
    MissingExtraError,
    StorageError,
    TrainingError,
    TrainingStoppedError,
    UserError,
)
from dcnn.text.encoder import unit_of
from dcnn.training.callbacks import TrainingBar

if TYPE_CHECKING:
    from dcnn.training.callbacks import Callback
    from dcnn.training.trainer import TrainingSummary
    from dcnn.tuning.search import FolderSizes, Search, Trained

    Fit = Callable[[Config, Callback], tuple[Artifact, TrainingSummary]]

DEFAULT_MINUTES = 10.0
CONTINUE = "the same command with --resume continues from there"


def tune(
    data: cli.TrainFile,
    out: cli.NewModelFolder,
    dev: cli.DevFile = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Time limit over all resumed searches; 10 without --trials."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Limit of the number of trials.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The largest model folder, e.g. 2MB.")
    ] = None,
    text_column: cli.TextColumn = None,
    label_column: cli.LabelColumn = None,
    weight_column: cli.WeightColumn = None,
    encoding: cli.Encoding = "utf-8",
    no_header: cli.NoHeader = False,
    config: cli.ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting to keep fixed; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed tries the same settings.")] = None,
    study: Annotated[
        Path | None, typer.Option(help="File of the trials; by default in OUT-tune.")
    ] = None,
    device: cli.Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a search that was stopped or killed.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model folder and the search.")
    ] = False,
) -> None:
    """Search for better settings, and train with the best.

    The first trial uses the default settings, or those of --config; Optuna proposes the others,
    and trials that lag behind are pruned. All are judged on dev alone, so keep test examples
    apart. Writes the model to OUT, and to OUT-tune a report with charts (report.html), all trials
    (trials.csv) and the best settings (best.toml), with which `dcnn train --config` gives the same
    model again.

    \b
    Examples:
      dcnn tune reviews.csv --out my-model --minutes 30
      dcnn tune train.csv --dev dev.csv --out small-model --max-size 500KB --trials 40
      dcnn tune tweets.jsonl.gz --out m --set text.tokenizer=tweet --set training.epochs=6
      dcnn tune reviews.csv --out my-model --minutes 60 --resume
    """
    console = cli.make_console(stderr=True)
    report_folder = Path(f"{out if out.name else out.resolve()}-tune")
    study_file = study or report_folder / "study.journal"
    replaces = overwrite or (resume and study_file.exists())
    if study_file.exists() and not (resume or overwrite):
        raise UserError(
            f"{study_file} holds a search; pass --resume to continue it, "
            "or --overwrite to start again"
        )
    if study_file.is_dir():
        raise UserError(f"--study {study_file} is a folder; name a file")
    model_folder.check_destination(out, replaces)
    start = cli.read_config(config, settings, seed=seed)
    columns = TableOptions(text_column, label_column, weight_column, encoding, not no_header)
    train_set, dev_set, _ = read_examples(data, dev, None, columns)
    if dev_set is None:
        train_set, dev_set = hold_out(train_set, start.training.dev_fraction, start.training.seed)
    cli.print_sizes(console, train_set, len(dev_set))
    try:
        from dcnn.cli.tune_bar import SearchBar
        from dcnn.training.fit import RunOptions, choose_device, fit
        from dcnn.tuning.report import (
            BEST,
            REPORT,
            SearchSummary,
            parse_size,
            show_size,
            write_report,
        )
        from dcnn.tuning.search import (
            FolderSizes,
            Limits,
            Search,
            SearchSpace,
            is_study,
            open_study,
            study_identity,
        )
    except ImportError:
        raise MissingExtraError("Tuning", "tune") from None

    limit = parse_size(max_size) if max_size else None
    fixed = frozenset(".".join(parse_setting(one)[:2]) for one in settings or ())
    place = choose_device(device).type
    sizes = FolderSizes(out.resolve().name, train_set, start, limit)
    _check_size(console, sizes, start, max_size)
    if study_file.exists() and not is_study(study_file):
        raise UserError(f"--study {study_file} is not a study, so it is left alone")
    _make_folders(report_folder, study_file, out, drop_study=overwrite and not resume)
    space = SearchSpace(start, fixed)
    identity = study_identity(train_set, dev_set, space, limit, place)

    def fit_once(settings: Config, callback: "Callback") -> "tuple[Artifact, TrainingSummary]":
        return fit(train_set, dev_set, settings, RunOptions(device=place, callback=callback))

    # Without any limit a search would not end.
    if minutes is None and trials is None:
        minutes = DEFAULT_MINUTES
    limits = Limits(None if minutes is None else 60 * minutes, trials)
    with SearchBar(console, limits) as bar, cli.stop_on_signal(bar):
        search = Search(
            open_study(study_file, identity),
            space,
            sizes.fitted,
            _trial(fit_once, out),
            limits,
            start.training.seed,
            bar,
        )
        if search.records:
            console.print(f"Resumed after {len(search.records)} trials.")
        if search.is_done and search.records and model_folder.is_model_folder(out):
            console.print(
                f"{out} is finished already; raise --minutes or --trials to continue the search.",
                soft_wrap=True,
            )
            return
        try:
            search.run()
        except (TrainingStoppedError, KeyboardInterrupt):
            raise TrainingStoppedError(
                f"stopped after {len(search.records)} trials; they are kept, and {CONTINUE}"
            ) from None
    artifact = _refit(console, search, fit_once, data)
    size = model_folder.folder_size(out.resolve().name, artifact)
    if limit is not None and size > limit:
        raise DcnnError(f"the folder would take {size:,} bytes, above --max-size {limit:,}")
    given_dev = f" --dev {dev}" if dev else ""
    summary = SearchSummary(
        data=data.name,
        train=len(train_set),
        dev=len(dev_set),
        dev_source=dev.name if dev else f"{start.training.dev_fraction:.0%} held out",
        max_size=limit,
        command=f"dcnn train {data}{given_dev} --config {report_folder / BEST} --out MODEL",
    )
    write_report(report_folder, search, summary)
    model_folder.save(out, artifact, replaces)
    console.print(
        f"The model is in {out} ({show_size(size)}), the report in {report_folder / REPORT}; "
        f"try: dcnn predict {out} 'a text'",
        soft_wrap=True,
    )


def _check_size(
    console: Console, sizes: "FolderSizes", start: Config, max_size: str | None
) -> None:
    """Check that the first trial fits ``--max-size``, and report if its vocabulary is cut."""
    from dcnn.tuning.report import show_size
    from dcnn.tuning.search import MIN_WORDS

    if max_size is not None and start.text.vectors_words:
        raise UserError(
            f"--max-size and text.vectors_words={start.text.vectors_words} do not go together: "
            "words that training never sees cannot be dropped by frequency; "
            "set text.vectors_words to 0"
        )
    unit = unit_of(start.text.tokenizer)
    fitted = sizes.fitted(start)
    if fitted is None:
        fewest = min(MIN_WORDS, sizes.words(start))
        raise UserError(
            f"--max-size {max_size} has no room for the first trial, which takes "
            f"{show_size(sizes.of(start, fewest))} with its {fewest} most frequent {unit}s; "
            "allow more, or start smaller, for instance with --set model.dim=16"
        )
    if fitted != start:
        console.print(
            f"The first trial keeps the {fitted.text.max_size:,} most frequent of "
            f"{sizes.words(start):,} {unit}s, to fit {max_size}."
        )


def _make_folders(report: Path, study_file: Path, out: Path, *, drop_study: bool) -> None:
    try:
        for folder in (report, study_file.parent, out.parent):
            folder.mkdir(parents=True, exist_ok=True)
        if drop_study:
            study_file.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{error.filename} cannot be created ({error.strerror})") from error


def _trial(fit: "Fit", out: Path) -> "Callable[[Config, Callback], Trained]":
    """What the search runs: train once, and measure."""
    from dcnn.tuning.search import Trained

    def train(config: Config, callback: "Callback") -> Trained:
        artifact, summary = fit(config, callback)
        # All trials use the same backend: it is logged once.
        logging.getLogger("dcnn").setLevel(logging.WARNING)
        best = [record for record in summary.history if record.best][-1]
        size = model_folder.folder_size(out.resolve().name, artifact)
        return Trained(best.dev_accuracy, best.dev_loss, summary.epochs, size)

    return train


def _refit(console: Console, search: "Search", fit: "Fit", data: Path) -> Artifact:
    """Train with the best settings as ``dcnn train`` would: same data, early stopping on dev."""
    best = search.best
    if best is None or best.trained is None:
        raise TrainingError(
            "no trial was completed: training diverged in each; "
            "start from other settings, for instance --set training.learning_rate=0.02"
        )
    console.print(
        f"Trial {best.number} of {len(search.records)} is the best: dev accuracy "
        f"{100 * best.trained.dev_accuracy:.2f} %. Training with its settings again.",
        soft_wrap=True,
    )
    with TrainingBar(console, quiet=True) as bar, cli.stop_on_signal(bar):
        try:
            artifact, summary = fit(best.config, bar)
        except (TrainingStoppedError, KeyboardInterrupt):
            raise TrainingStoppedError(
                f"stopped while training with the best; all trials are kept, and {CONTINUE}"
            ) from None
    console.print(f"Dev accuracy {100 * (summary.dev_accuracy or 0):.2f} % again.")
    counts = Counter(record.outcome for record in search.records)
    metadata = {
        "data": data.name,
        "dcnn": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "tuning": {
            "command": "dcnn tune",
            "trials": len(search.records),
            "complete": counts["complete"],
            "best_trial": best.number,
            "seed": best.config.training.seed,
            "minutes": round(search.seconds / 60, 1),
        },
    }
    return replace(artifact, metadata=artifact.metadata | metadata)
