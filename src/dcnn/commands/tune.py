"""``dcnn tune``: look for good settings within a time, train with the best again, and report.

The search judges on dev alone; ``MODEL-tune`` beside the model holds the study and the report.
"""

import datetime
import logging
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.commands.examples import read_examples
from dcnn.commands.given_settings import given_config
from dcnn.commands.stopping import stop_on_signal
from dcnn.config import Config, parse_setting
from dcnn.data.labels import LabelledTexts
from dcnn.data.readers import TableOptions
from dcnn.data.split import hold_out
from dcnn.errors import (
    DcnnError,
    MissingExtraError,
    StorageError,
    TrainingError,
    TrainingStoppedError,
    UserError,
)
from dcnn.terminal import TrainingBar, make_console
from dcnn.text.subwords import unit_of

if TYPE_CHECKING:
    from dcnn.training.callbacks import Callback
    from dcnn.tuning.search import Search, Train

DEFAULT_MINUTES = 10.0
GO_ON = "the same command with --resume goes on from there"


@dataclass(frozen=True)
class TuneOptions:
    """The options of the command; see its help."""

    data: Path
    out: Path
    dev: Path | None
    columns: TableOptions
    config: Path | None
    settings: tuple[str, ...]
    seed: int | None
    minutes: float | None
    trials: int | None
    max_size: str | None
    study: Path | None
    device: str
    resume: bool
    overwrite: bool

    @property
    def report(self) -> Path:
        """The folder of the report."""
        return Path(f"{self.out if self.out.name else self.out.resolve()}-tune")

    @property
    def study_file(self) -> Path:
        """Where the trials are kept."""
        return self.study or self.report / "study.journal"


@dataclass(frozen=True)
class Examples:
    """What every trial learns from and is judged on."""

    train: LabelledTexts
    dev: LabelledTexts
    dev_source: str


def run_tune(options: TuneOptions) -> None:
    """Search, and leave the best model at ``options.out``."""
    console = make_console(stderr=True)
    replaces = options.overwrite or (options.resume and options.study_file.exists())
    if options.study_file.exists() and not (options.resume or options.overwrite):
        raise UserError(
            f"{options.study_file} holds a search; pass --resume to go on with it, "
            "or --overwrite to start again"
        )
    if options.study_file.is_dir():
        raise UserError(f"--study {options.study_file} is a folder; name a file")
    model_folder.check_destination(options.out, replaces)
    start = _start(options)
    examples = _examples(options, start)
    console.print(
        f"{len(examples.train.texts):,} training and {len(examples.dev.texts):,} dev examples, "
        f"{len(examples.train.classes)} labels"
    )
    _search_and_save(console, options, start, examples, replaces)


def _start(options: TuneOptions) -> Config:
    config = given_config(options.config, options.settings)
    return config if options.seed is None else config.with_training(seed=options.seed)


def _examples(options: TuneOptions, start: Config) -> Examples:
    train, dev, _ = read_examples(options.data, options.dev, None, options.columns)
    source = options.dev.name if options.dev else f"{start.training.dev_fraction:.0%} held out"
    if dev is None:
        train, dev = hold_out(train, start.training.dev_fraction, start.training.seed)
    return Examples(train, dev, source)


def _search_and_save(
    console: Console, options: TuneOptions, start: Config, examples: Examples, replaces: bool
) -> None:
    try:
        from dcnn.commands.tune_bar import SearchBar
        from dcnn.training.fit import choose_device
        from dcnn.tuning.report import REPORT, parse_size, show_size
        from dcnn.tuning.search import (
            MIN_WORDS,
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

    limit = parse_size(options.max_size) if options.max_size else None
    unit = unit_of(start.text.tokenizer)
    if limit is not None and start.text.vectors_words:
        raise UserError(
            f"--max-size and text.vectors_words={start.text.vectors_words} do not go together: "
            "words that training never shows cannot be dropped by how often it shows them; "
            "set text.vectors_words to 0"
        )
    device = choose_device(options.device).type
    held = frozenset(".".join(parse_setting(one)[:2]) for one in options.settings)
    name = options.out.resolve().name
    sizes = FolderSizes(name, examples.train.texts, start, examples.train.classes, limit)
    if (fitted := sizes.fitted(start)) is None:
        fewest = min(MIN_WORDS, sizes.words(start))
        raise UserError(
            f"--max-size {options.max_size} has no room for the start, which takes "
            f"{show_size(sizes.of(start, fewest))} with its {fewest} most frequent {unit}s; "
            "allow more, or start smaller, for instance with --set model.dim=16"
        )
    if options.study_file.exists() and not is_study(options.study_file):
        raise UserError(f"--study {options.study_file} is no study, so it is left alone")
    _make_room(options)
    identity = study_identity(examples.train, examples.dev, start, sorted(held), limit, device)
    study = open_study(options.study_file, identity)
    if fitted != start:
        console.print(
            f"The start keeps its {fitted.text.max_size:,} most frequent {unit}s of "
            f"{sizes.words(start):,}, to fit {options.max_size}."
        )
    # Without a limit a search would not end by itself.
    endless = options.minutes is None and options.trials is None
    minutes = DEFAULT_MINUTES if endless else options.minutes
    limits = Limits(None if minutes is None else 60 * minutes, options.trials)
    with SearchBar(console, limits) as bar, stop_on_signal(bar):
        train = _trainer(examples, device, name)
        search = Search(study, SearchSpace(start, held), sizes.fitted, train, limits,
                        start.training.seed, bar)  # fmt: skip
        if search.records:
            console.print(f"Resumed after {len(search.records)} trials.")
        if search.is_done and search.records and model_folder.is_model_folder(options.out):
            console.print(
                f"{options.out} is finished already; --minutes and --trials may be raised "
                "to go on with the search.",
                soft_wrap=True,
            )
            return
        try:
            search.run()
        except (TrainingStoppedError, KeyboardInterrupt):
            raise TrainingStoppedError(
                f"stopped after {len(search.records)} trials; they are kept, and {GO_ON}"
            ) from None
    artifact = _refit(console, options, search, examples, device)
    size = model_folder.folder_size(name, artifact)
    if limit is not None and size > limit:
        raise DcnnError(f"the folder would take {size:,} bytes, above --max-size {limit:,}")
    _report(options, search, examples, limit)
    model_folder.save(options.out, artifact, replaces)
    console.print(
        f"The model is in {options.out} ({show_size(size)}), the report in "
        f"{options.report / REPORT}; try: dcnn predict {options.out} 'a text'",
        soft_wrap=True,
    )


def _make_room(options: TuneOptions) -> None:
    """Make the folders, and drop the search that ``--overwrite`` replaces."""
    try:
        for folder in (options.report, options.study_file.parent, options.out.parent):
            folder.mkdir(parents=True, exist_ok=True)
        if options.overwrite and not options.resume:
            options.study_file.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{error.filename} cannot be made ({error.strerror})") from error


def _trainer(examples: Examples, device: str, name: str) -> "Train":
    from dcnn.training.fit import RunOptions, fit
    from dcnn.tuning.search import Trained

    logger = logging.getLogger("dcnn")

    def train(config: Config, callback: "Callback") -> Trained:
        artifact, summary = fit(
            examples.train, examples.dev, config, RunOptions(device=device, callback=callback)
        )
        logger.setLevel(logging.WARNING)  # the backend is the same for all of them: said once
        best = [record for record in summary.history if record.best][-1]
        size = model_folder.folder_size(name, artifact)
        return Trained(best.dev_accuracy, best.dev_loss, summary.epochs, size)

    return train


def _refit(
    console: Console,
    options: TuneOptions,
    search: "Search",
    examples: Examples,
    device: str,
) -> Artifact:
    """Train with the best settings as ``dcnn train`` would: on the same data, stopped by dev."""
    from dcnn.training.fit import RunOptions, fit

    best = search.best
    if best is None or best.trained is None:
        raise TrainingError(
            "no trial came to its end: training diverged in each; "
            "start from other settings, for instance --set training.learning_rate=0.02"
        )
    console.print(
        f"Trial {best.number} of {len(search.records)} is the best: dev accuracy "
        f"{100 * best.trained.dev_accuracy:.2f} %. Training with its settings again.",
        soft_wrap=True,
    )
    with TrainingBar(console, quiet=True) as bar, stop_on_signal(bar):
        try:
            artifact, summary = fit(
                examples.train,
                examples.dev,
                best.config,
                RunOptions(device=device, callback=bar),
            )
        except (TrainingStoppedError, KeyboardInterrupt):
            raise TrainingStoppedError(
                f"stopped while training the best again; all trials are kept, and {GO_ON}"
            ) from None
    console.print(f"Dev accuracy {100 * (summary.dev_accuracy or 0):.2f} % again.")
    return replace(artifact, metadata=artifact.metadata | _facts(options, search))


def _facts(options: TuneOptions, search: "Search") -> dict[str, Any]:
    best, counts = search.best, Counter(record.outcome for record in search.records)
    assert best is not None  # noqa: S101
    return {
        "data": options.data.name,
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


def _report(
    options: TuneOptions, search: "Search", examples: Examples, max_size: int | None
) -> None:
    from dcnn.tuning.report import BEST, SearchSummary, write_report

    best = search.best
    assert best is not None  # noqa: S101
    dev = f" --dev {options.dev}" if options.dev else ""
    facts = SearchSummary(
        data=options.data.name,
        train=len(examples.train.texts),
        dev=len(examples.dev.texts),
        dev_source=examples.dev_source,
        seed=best.config.training.seed,
        seconds=search.seconds,
        max_size=max_size,
        command=f"dcnn train {options.data}{dev} --config {options.report / BEST} --out MODEL",
    )
    write_report(options.report, search.study, search.records, best, facts)
