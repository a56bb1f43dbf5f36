"""``dcnn tune``: search for better settings, train with the best again, and report.

The search uses dev alone; ``MODEL-tune`` beside the model holds the study and the report.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from dcnn import artifact as model_folder
from dcnn.cli import console as cli
from dcnn.config import Config, parse_setting
from dcnn.data.readers import TableOptions
from dcnn.data.split import read_split
from dcnn.errors import DcnnError, TrainingError, TrainingStoppedError, UserError, needs_extra
from dcnn.files import make_folder, show_size
from dcnn.text.encoder import unit_of
from dcnn.training.callbacks import Callback, TrainingBar

if TYPE_CHECKING:
    from dcnn.tuning.search import FolderSizes

DEFAULT_MINUTES = 10.0


def tune(
    data: cli.TrainFile,
    out: cli.NewModelFolder,
    dev: cli.DevFile = None,
    minutes: Annotated[
        float | None,
        Option(min=0.01, help="Time limit over all resumed searches; 10 without --trials."),
    ] = None,
    trials: Annotated[int | None, Option(min=1, help="Limit of the number of trials.")] = None,
    max_size: Annotated[
        str | None, Option(metavar="SIZE", help="The largest model folder, e.g. 2MB.")
    ] = None,
    text_column: cli.TextColumn = None,
    label_column: cli.LabelColumn = None,
    weight_column: cli.WeightColumn = None,
    encoding: cli.Encoding = "utf-8",
    no_header: cli.NoHeader = False,
    config: cli.ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A setting to keep fixed; repeatable."),
    ] = None,
    seed: Annotated[int | None, Option(help="The same seed tries the same settings.")] = None,
    study: Annotated[
        Path | None, Option(help="File of the trials; by default in OUT-tune.")
    ] = None,
    device: cli.Device = "auto",
    resume: cli.Resume = False,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace an existing model or search.")
    ] = False,
) -> None:
    """Search for better settings, and train with the best.

    The first trial uses the default settings, or those of --config; Optuna proposes the others,
    and trials that lag behind are pruned. All are judged on dev alone, so keep test examples
    apart. Writes the model to OUT, and to OUT-tune a report with charts (report.html), all trials
    (trials.csv) and the best settings (best.toml), with which `dcnn train --config` gives the same
    model again.
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
    with needs_extra("Tuning", "tune"):
        from dcnn.cli.tune_bar import SearchBar
        from dcnn.tuning import report
        from dcnn.tuning import search as tuning
    limit = report.parse_size(max_size) if max_size else None
    train_set, dev_set, _ = read_split(data, dev, None, columns, start.training)
    cli.print_sizes(console, train_set, len(dev_set))
    with needs_extra("Tuning", "tune"):
        from dcnn.training.fit import RunOptions, choose_device, fit
    place = choose_device(device).type
    fixed = frozenset(".".join(parse_setting(one)[:2]) for one in settings or ())
    name = out.resolve().name
    sizes = tuning.FolderSizes(name, train_set, start, limit)
    _check_size(console, sizes, start, max_size)
    if study_file.exists() and not tuning.is_study(study_file):
        raise UserError(f"--study {study_file} is not a study, so it is left alone")
    for folder in (report_folder, study_file.parent, out.parent):
        make_folder(folder)
    if overwrite and not resume:
        study_file.unlink(missing_ok=True)
    space = tuning.SearchSpace(start, fixed)
    identity = tuning.study_identity(train_set, dev_set, space, limit, place)

    def trial(settings: Config, callback: Callback) -> tuning.Trained:
        artifact, summary = fit(train_set, dev_set, settings, RunOptions(place, callback=callback))
        # All trials use the same backend: it is logged once.
        logging.getLogger("dcnn").setLevel(logging.WARNING)
        best = [record for record in summary.history if record.best][-1]
        size = model_folder.folder_size(name, artifact)
        return tuning.Trained(best.dev_accuracy, best.dev_loss, summary.epochs, size)

    # Without any limit a search would not end.
    if minutes is None and trials is None:
        minutes = DEFAULT_MINUTES
    limits = tuning.Limits(None if minutes is None else 60 * minutes, trials)
    shown = cli.progress_bar(console, "{task.description}", "{task.fields[left]}")
    with shown, cli.stop_on_signal(bar := SearchBar(shown, limits)):
        opened = tuning.open_study(study_file, identity)
        search = tuning.Search(opened, space, sizes.fitted, trial, limits, start.training.seed, bar)
        if search.records:
            console.print(f"Resumed after {len(search.records)} trials.")
        if search.is_done and search.records and model_folder.is_model_folder(out):
            console.print(
                f"{out} is finished already; raise --minutes or --trials to continue the search."
            )
            return
        try:
            search.run()
        except (TrainingStoppedError, KeyboardInterrupt):
            kept = f"stopped after {len(search.records)} trials; they are kept"
            raise TrainingStoppedError(f"{kept}, and {cli.CONTINUE}") from None
    best = search.best
    if best is None or best.trained is None:
        raise TrainingError(
            "no trial was completed: training diverged in each; "
            "start from other settings, for instance --set training.learning_rate=0.02"
        )
    console.print(
        f"Trial {best.number} of {len(search.records)} is the best: dev accuracy "
        f"{100 * best.trained.dev_accuracy:.2f} %. Training with its settings again."
    )
    # As `dcnn train` would: the same data, early stopping on dev.
    with TrainingBar(console, quiet=True) as training_bar, cli.stop_on_signal(training_bar):
        try:
            options = RunOptions(place, callback=training_bar)
            artifact, summary = fit(train_set, dev_set, best.config, options)
        except (TrainingStoppedError, KeyboardInterrupt):
            kept = "stopped while training with the best; all trials are kept"
            raise TrainingStoppedError(f"{kept}, and {cli.CONTINUE}") from None
    console.print(f"Dev accuracy {100 * (summary.dev_accuracy or 0):.2f} % again.")
    tuned = {
        "command": "dcnn tune",
        "trials": len(search.records),
        "complete": sum(record.outcome == "complete" for record in search.records),
        "best_trial": best.number,
        "seed": best.config.training.seed,
        "minutes": round(search.seconds / 60, 1),
    }
    metadata = artifact.metadata | cli.run_metadata(data) | {"tuning": tuned}
    artifact = replace(artifact, metadata=metadata)
    size = model_folder.folder_size(name, artifact)
    if limit is not None and size > limit:
        raise DcnnError(f"the folder would take {size:,} bytes, above --max-size {limit:,}")
    given_dev = f" --dev {dev}" if dev else ""
    command = f"dcnn train {data}{given_dev} --config {report_folder / report.BEST} --out MODEL"
    about = report.SearchSummary(
        data=data.name,
        train=len(train_set),
        dev=len(dev_set),
        dev_source=dev.name if dev else f"{start.training.dev_fraction:.0%} held out",
        max_size=limit,
        command=command,
    )
    report.write_report(report_folder, search, about)
    model_folder.save(out, artifact, replaces)
    console.print(
        f"The model is in {out} ({show_size(size)}), the report in "
        f"{report_folder / report.REPORT}; try: dcnn predict {out} 'a text'"
    )


def _check_size(
    console: Console, sizes: "FolderSizes", start: Config, max_size: str | None
) -> None:
    """Check that the first trial fits ``--max-size``, and report if its vocabulary is cut."""
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
