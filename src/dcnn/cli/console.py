"""What the commands share: option types, the settings they read, consoles, progress bars, Ctrl-C.

An option that several commands take is declared here once, with its help text.
"""

import csv
import datetime
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dcnn import __version__
from dcnn.errors import ConfigError, UserError

if TYPE_CHECKING:  # rich takes longer to import than a prediction takes
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from dcnn.config import Config
    from dcnn.data import labels, readers, store
    from dcnn.training.callbacks import Callback

_TABLES = ".csv, .tsv, .jsonl, .parquet, .arrow or .feather"
_MANY = "a folder or a quoted pattern names many"
LABELLED_FILES = f"Labelled texts: {_TABLES}; {_MANY}."
TEXT_FILES = f"Texts: {_TABLES}, or .txt with one per line; {_MANY}."

CONTINUE = "the same command with --resume continues from there"

# An option is named like its parameter where no other name is given here.
ModelFolder = Annotated[
    Path, Argument(metavar="MODEL", help="A model folder, as `dcnn train` writes it.")
]
NewModelFolder = Annotated[Path, Option(help="The model folder to write.")]
TrainFiles = Annotated[Path, Argument(metavar="TRAIN", help=LABELLED_FILES)]
TrainFile = Annotated[
    Path, Argument(metavar="TRAIN", help="Labelled texts: .csv, .tsv or .jsonl, also compressed.")
]
DevFile = Annotated[
    Path | None, Option(help="Examples for model selection; by default a part of TRAIN.")
]
TestFile = Annotated[Path | None, Option(help="Examples to score the finished model on, once.")]
TextColumn = Annotated[str | None, Option(help="Column of the texts; guessed if not given.")]
LabelColumn = Annotated[str | None, Option(help="Column of the labels; guessed if not given.")]
LabelsSeparator = Annotated[
    str | None,
    Option(
        metavar="S",
        help="Multi-label: a cell holds any number of labels, separated by S, such as '|'.",
    ),
]
LabelColumns = Annotated[
    str | None,
    Option(
        metavar="A,B,...",
        help="Multi-label: 0/1 columns, one per label (quote a name that has a comma); or, with "
        "--single-label, probabilities that sum to 1.",
    ),
]
MultiLabel = Annotated[
    bool | None,
    Option(
        "--multi-label/--single-label",
        help="Whether texts may have any number of labels, or have one each, whose probabilities "
        "sum to 1; by default as the labels are written.",
        show_default=False,
    ),
]
WeightColumn = Annotated[str | None, Option(help="Column of example weights, if any.")]
Encoding = Annotated[str, Option(help="Encoding of the files.")]
NoHeader = Annotated[
    bool, Option("--no-header", help="CSV and TSV start with data; columns are then 1, 2, ...")
]
_ABSTAIN = "Give no label to a text whose highest probability is below P."
AbstainBelow = Annotated[float | None, Option(metavar="P", min=0, max=1, help=_ABSTAIN)]
ConfigFile = Annotated[Path | None, Option(help="Settings as TOML: [text] [model] [training].")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="A setting, e.g. model.dim=64; repeatable."),
]
Epochs = Annotated[int | None, Option(help="Passes over TRAIN.")]
Seed = Annotated[int | None, Option(help="The same seed gives the same model.")]
Threads = Annotated[int, Option(min=1, help="CPU threads; their number changes rounding.")]
Device = Annotated[str, Option(metavar="auto|cpu|cuda", help="Where to train; auto prefers a GPU.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
Resume = Annotated[bool, Option("--resume", help="Continue a run that was stopped or killed.")]
Overwrite = Annotated[
    bool, Option("--overwrite", help="Replace an existing model or unfinished run.")
]
DataFolder = Annotated[
    Path | None,
    Option(
        "--data", help="Folder of the corpora; by default DCNN_DATA, then the user's data folder."
    ),
]


def split_names(option: str, names: str | None) -> tuple[str, ...]:
    """The comma-separated names of an option; quotes keep a comma inside a name."""
    if names is None:
        return ()
    fields = next(csv.reader([names], skipinitialspace=True))
    found = tuple(name.strip() for name in fields if name.strip())
    if not found:
        raise UserError(f"{option} {names!r} holds no name; separate names by commas: a,b")
    return found


def with_labels(
    columns: "readers.TableOptions",
    labels_separator: str | None,
    label_columns: str | None,
    multi_label: bool | None,
) -> "readers.TableOptions":
    """``columns``, and how multi-label data and probabilities of labels are written."""
    names = split_names("--label-columns", label_columns)
    return replace(
        columns, labels_separator=labels_separator, label_columns=names, multi_label=multi_label
    )


def read_config(
    path: Path | None, settings: Sequence[str] | None, **training: int | None
) -> "Config":
    """The settings of a TOML file, overridden by ``--set key=value``, and by ``--epochs`` and such.

    A setting without effect is refused here and not in ``Config``: model folders that were trained
    with one must still load, and a grid search may hold it beside other tokenizers.
    """
    from dcnn.config import DEFAULT, TextConfig, load_toml

    config = (load_toml(path) if path else DEFAULT).with_settings(settings or ())
    text = config.text
    if text.n_subwords != TextConfig.n_subwords and text.tokenizer not in ("bpe", "unigram"):
        raise ConfigError(
            f"text.n_subwords={text.n_subwords} is the number of subwords that bpe and unigram "
            f"learn, and text.tokenizer={text.tokenizer} learns none; set text.tokenizer to bpe or "
            "unigram, or leave text.n_subwords out"
        )
    return config.with_training(**{k: value for k, value in training.items() if value is not None})


def printable(value: object) -> str:
    """A text or label without the control characters that a terminal would obey."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\ufffd", str(value))


def make_console(stderr: bool = False, quiet: bool = False) -> "Console":
    """A console that prints text as it is: ``[b]`` is a label, not markup, and lines stay whole."""
    from rich.console import Console

    return Console(
        stderr=stderr, quiet=quiet, markup=False, highlight=False, emoji=False, soft_wrap=True
    )


def make_table(*columns: str, left: int = 1) -> "Table":
    """A plain table; the first ``left`` columns are left-aligned, the others hold numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def progress_bar(
    console: "Console", first: "str | ProgressColumn", *others: "str | ProgressColumn"
) -> "Progress":
    """A bar after ``first`` that disappears when done; nothing without a terminal."""
    from rich.progress import BarColumn, Progress

    columns = (first, BarColumn(bar_width=24), *others)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def count_progress(console: "Console", description: str) -> Iterator[Callable[[int], None]]:
    """A bar with a running count at ``{count}``; yields the function that updates it."""
    from rich.progress import TimeElapsedColumn

    text = description.replace("{count}", "{task.completed:,.0f}")
    with progress_bar(console, text, TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=None)  # the bar of a task without an end pulses
        yield lambda count: bar.update(task, completed=count)


@contextmanager
def stop_on_signal(callback: "Callback", *, patient: bool = False) -> Iterator[None]:
    """Let the first Ctrl-C end training after the current step, with everything saved.

    The second one ends it at once, unless ``patient``: torchrun passes on a signal that the
    terminal has already sent to every process.
    """

    def stop(number: int, _: object) -> None:
        callback.stop = True
        if not patient:
            signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_metadata(data: Path) -> dict[str, Any]:
    """What a model folder records about the command that trained it."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"data": data.name or data.resolve().name, "dcnn": __version__, "date": today}


def print_sizes(
    console: "Console", train: "labels.LabelledTexts | store.Corpus", n_dev: int
) -> None:
    """Print how many examples and labels there are."""
    classes = f"{len(train.classes)} labels"
    kind = ", multi-label" if getattr(train, "multi_label", False) else ""
    console.print(f"{len(train):,} training and {n_dev:,} dev examples, {classes}{kind}")
