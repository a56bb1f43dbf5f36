"""``dcnn tune``: search for better settings, train with the best again, and report.

Test examples are never read; ``MODEL-tune`` beside the model holds the study and the report.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from dcnn import artifact as model_folder
from dcnn.cli import console as cli
from dcnn.cli.train import only_run
from dcnn.config import DEFAULT, Config, parse_setting
from dcnn.data.readers import read_examples
from dcnn.data.split import hold_out
from dcnn.errors import DcnnError, TrainingError, TrainingStoppedError, UserError, needs_extra
from dcnn.files import make_folder, parse_size, show_size
from dcnn.text.encoder import unit_of
from dcnn.training.callbacks import TrainingBar

if TYPE_CHECKING:
    from dcnn.artifact import Artifact
    from dcnn.tuning.evaluation import Evaluation
    from dcnn.tuning.report import SearchSummary
    from dcnn.tuning.search import Search, TrialRecord
    from dcnn.tuning.space import FolderSizes

DEFAULT_MINUTES = 10.0


@cli.grouped
@only_run
def tune(
    data: cli.TrainFile,
    out: cli.NewModelFolder,
    reading: Annotated[
        cli.ReadTable,
        cli.table_options,
        "text_column label_column weight_column encoding no_header",
    ],
    dev: Path | None = None,
    minutes: Annotated[float | None, Option(min=0.01)] = None,
    trials: cli.OptionalCount = None,
    max_size: Annotated[str | None, Option(metavar="SIZE")] = None,
    jobs: cli.Threads = 1,
    folds: cli.OptionalCount = None,
    config: Path | None = None,
    settings: cli.Settings = None,
    seed: int | None = None,
    study: Path | None = None,
    device: cli.Device = "auto",
    resume: cli.Resume = False,
    overwrite: cli.Overwrite = False,
) -> None:
    """Search for better settings, and train with the best.

    The first trial uses the default settings, or those of --config. The others change the tokens
    (tokenizer, casing, subwords, vocabulary), the network (depth, widths, ensemble) and its
    training; trials that lag behind are pruned. All have the same evaluation, on dev or, where dev
    is small, by cross-validation on TRAIN, so keep test examples apart. The command reports whether
    the gain is beyond noise, and never chooses settings that are worse than those of the first
    trial. Writes the model to OUT, and to OUT-tune a report with charts (report.html), all trials
    (trials.csv) and the best settings (best.toml), with which `dcnn train --config` gives the same
    model again.
    """
    console = cli.make_console(stderr=True)
    paths = _Paths.check(out, study, resume, overwrite)
    start = cli.read_config(config, settings, seed)
    is_default = start == DEFAULT.with_training(seed=start.training.seed)
    name_of_start = "the default settings" if is_default else "the given settings"
    columns = reading()
    with needs_extra("Tuning", "tune"):
        from dcnn.tuning import report
        from dcnn.tuning import search as tuning
        from dcnn.tuning.space import FolderSizes, SearchSpace
    limit = parse_size(max_size) if max_size else None
    train_set, dev_set, _ = read_examples(data, dev, None, columns)
    if dev_set is None:
        start = start.with_training(dev_fraction=start.training.dev_fraction)  # for any number
        train_set, dev_set = hold_out(train_set, start.training.dev_fraction, start.training.seed)
    sizes_of_data = len(train_set), len(dev_set), len(train_set.classes)
    start = replace(start, training=start.training.for_examples(*sizes_of_data))
    cli.print_sizes(console, train_set, len(dev_set))
    with needs_extra("Tuning", "tune"):
        from dcnn.training.fit import choose_device
        from dcnn.training.resampling import logged_once
        from dcnn.tuning.evaluation import Evaluation, choose_folds
    device, name = choose_device(device), out.resolve().name
    chosen_folds = choose_folds(train_set, dev_set, folds)
    evaluation = Evaluation(name, train_set, dev_set, chosen_folds, device, start.training.seed)
    sizes = FolderSizes(name, train_set, limit)
    _check_size(console, sizes, start, max_size)
    paths.prepare(starts_again=overwrite and not resume)
    space = SearchSpace(start, frozenset(".".join(parse_setting(s)[:2]) for s in settings or ()))
    identity = tuning.study_identity(
        train_set,
        dev_set,
        space,
        **{"--max-size": limit, "--device": device, "--folds": chosen_folds},
        **{"the number of trials at once": max(tuning.AHEAD, jobs)},
    )
    # Without any limit a search would not end.
    if minutes is None and trials is None:
        minutes = DEFAULT_MINUTES
    search = tuning.Search(
        tuning.open_study(paths.study, identity),
        space,
        sizes.fitted,
        evaluation,
        tuning.Limits(None if minutes is None else 60 * minutes, trials),
        start.training.seed,
        folds=chosen_folds,
        jobs=jobs,
    )
    if search.is_done and search.records and model_folder.is_model_folder(out):
        console.print(
            f"{out} is finished already; raise --minutes or --trials to continue the search."
        )
        return
    with logged_once():
        _run(console, search, evaluation)
    given_dev = f" --dev {dev}" if dev else ""
    about = report.SearchSummary(
        data=data.name,
        train=len(train_set),
        dev=len(dev_set),
        dev_source=dev.name if dev else f"{start.training.dev_fraction:.0%} held out",
        max_size=limit,
        command=f"dcnn train {data}{given_dev} --config {paths.report / report.BEST} --out MODEL",
        start=name_of_start,
        gain=report.gain_over_start(search.records, evaluation.examples),
    )
    with logged_once():
        best, artifact = _refit(console, search, evaluation, about)
    if best.number == 0 and about.gain is not None:  # after a refit that was worse, too
        about = replace(about, gain=replace(about.gain, best=0, points=0.0, p=1.0))
    report.write_report(paths.report, search, about, best)
    metadata = artifact.metadata | cli.run_metadata(data)
    metadata["tuning"] = _metadata(search, best, about)
    _save(console, paths, replace(artifact, metadata=metadata), limit)


@dataclass(frozen=True)
class _Paths:
    """What the command writes."""

    model: Path
    report: Path
    study: Path
    replaces: bool  # whether an existing model may be replaced

    @classmethod
    def check(cls, out: Path, study: Path | None, resume: bool, overwrite: bool) -> "_Paths":
        """Check, before any work is done, that all can be written."""
        report_folder = Path(f"{out if out.name else out.resolve()}-tune")
        study = study or report_folder / "study.journal"
        if study.exists() and not (resume or overwrite):
            raise UserError(
                f"{study} holds a search; pass --resume to continue it, "
                "or --overwrite to start again"
            )
        if study.exists() and not study.is_file():
            raise UserError(f"--study {study} is not a file; name one")
        replaces = overwrite or (resume and study.exists())
        model_folder.check_destination(out, replaces)
        return cls(out, report_folder, study, replaces)

    def prepare(self, starts_again: bool) -> None:
        """Make the folders, and remove a study that is to be replaced."""
        from dcnn.tuning.search import is_study

        if self.study.exists() and not is_study(self.study):
            raise UserError(f"--study {self.study} is not a study, so it is left alone")
        for folder in (self.report, self.study.parent):
            make_folder(folder)
        if starts_again:
            self.study.unlink(missing_ok=True)


def _run(console: Console, search: "Search", evaluation: "Evaluation") -> None:
    """Search until a limit is reached; after Ctrl-C, finished trials are kept."""
    from dcnn.tuning.search import SearchBar

    if evaluation.folds > 1:
        console.print(
            f"Trials are evaluated by {evaluation.folds}-fold cross-validation on the "
            f"{evaluation.examples:,} training examples, since dev is small."
        )
    if search.records:
        console.print(f"Resumed after {len(search.records)} trials.")
    shown = cli.progress_bar(console, "{task.description}", "{task.fields[left]}")
    bar = SearchBar(shown, search.limits, search.measure)
    search.callback = bar
    with shown, cli.stop_on_signal(bar):
        try:
            search.run()
        except (TrainingStoppedError, KeyboardInterrupt):
            kept = f"stopped after {len(search.records)} trials; they are kept"
            raise TrainingStoppedError(f"{kept}, and {cli.CONTINUE}") from None


def _refit(
    console: Console, search: "Search", evaluation: "Evaluation", about: "SearchSummary"
) -> "tuple[TrialRecord, Artifact]":
    """Train with the best settings as `dcnn train` would: the same data, the same dev set.

    On a GPU a training is not repeated exactly: if the repetition is worse than the first trial
    was, the settings of the first trial are taken instead.
    """
    from dcnn.tuning.evaluation import score

    best, start = search.best, search.records[0].trained
    if best is None or best.trained is None:
        raise TrainingError(
            "no trial was completed: training diverged in each; "
            "start from other settings, for instance --set training.learning_rate=0.02"
        )
    console.print(
        f"Trial {best.number} of {len(search.records)} is the best: {search.measure} "
        f"{100 * best.trained.accuracy:.2f} %."
    )
    if about.gain is not None:
        console.print(about.gain.describe(about.start))
    console.print("Training with its settings again.")
    artifact = _fit(console, evaluation, best.config)
    accuracy = score(artifact, evaluation.dev)[0].mean()
    if evaluation.folds == 1 and best.number and start and accuracy < start.accuracy:
        console.print(
            f"Dev accuracy {100 * accuracy:.2f} % this time, below the {100 * start.accuracy:.2f} "
            f"% of {about.start}, which are taken instead."
        )
        best = search.records[0]
        artifact = _fit(console, evaluation, best.config)
        accuracy = score(artifact, evaluation.dev)[0].mean()
    again = " again" if evaluation.folds == 1 else ""
    console.print(f"Dev accuracy {100 * accuracy:.2f} %{again}.")
    return best, artifact


def _fit(console: Console, evaluation: "Evaluation", config: Config) -> "Artifact":
    with TrainingBar(console, quiet=True) as bar, cli.stop_on_signal(bar):
        try:
            return evaluation.fit(config, bar)[0]
        except (TrainingStoppedError, KeyboardInterrupt):
            kept = "stopped while training with the best; all trials are kept"
            raise TrainingStoppedError(f"{kept}, and {cli.CONTINUE}") from None


def _save(console: Console, paths: _Paths, artifact: "Artifact", limit: int | None) -> None:
    from dcnn.tuning.report import REPORT

    size = model_folder.folder_size(paths.model.resolve().name, artifact)
    if limit is not None and size > limit:
        raise DcnnError(f"the folder would take {size:,} bytes, above --max-size {limit:,}")
    model_folder.save(paths.model, artifact, paths.replaces)
    console.print(
        f"The model is in {paths.model} ({show_size(size)}), the report in "
        f"{paths.report / REPORT}; try: dcnn predict {paths.model} 'a text'"
    )


def _metadata(search: "Search", best: "TrialRecord", about: "SearchSummary") -> dict[str, object]:
    metadata: dict[str, object] = {
        "command": "dcnn tune",
        "trials": len(search.records),
        "complete": sum(record.outcome == "complete" for record in search.records),
        "best_trial": best.number,
        "evaluation": "dev" if search.folds == 1 else f"{search.folds}-fold cross-validation",
        "seed": best.config.training.seed,
        "minutes": round(search.seconds / 60, 1),
    }
    if best.trained is not None:
        metadata["accuracy"] = best.trained.accuracy
    if about.gain is not None and best.number:
        metadata |= {"gain": about.gain.points, "gain_p": about.gain.p}
    return metadata


def _check_size(
    console: Console, sizes: "FolderSizes", start: Config, max_size: str | None
) -> None:
    """Check that the first trial fits ``--max-size``, and report if its vocabulary is cut."""
    from dcnn.tuning.space import MIN_WORDS

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
        words = sizes.words(fitted)
        dropped = bool(start.text.char_ngrams) and not fitted.text.char_ngrams
        without = ", without character n-grams" if dropped else ""
        console.print(
            f"The first trial keeps the {words:,} most frequent of "
            f"{sizes.words(start):,} {unit}s{without}, to fit {max_size}."
        )
