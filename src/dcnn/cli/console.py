"""What the commands share: option types, the settings they read, consoles, progress bars, Ctrl-C.

An option that several commands take is declared here once, with its help text.
"""

import csv
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dcnn.config import DEFAULT, Config, TextConfig, load_toml
from dcnn.errors import ConfigError, UserError

if TYPE_CHECKING:  # rich takes longer to import than a prediction takes
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from dcnn.data.labels import LabelledTexts
    from dcnn.data.store import Corpus
    from dcnn.training.callbacks import Callback

_TABLES = ".csv, .tsv, .jsonl, .parquet, .arrow or .feather"
_MANY = "a folder or a quoted pattern names many"
LABELLED_FILES = f"Labelled texts: {_TABLES}; {_MANY}."
TEXT_FILES = f"Texts: {_TABLES}, or .txt with one per line; {_MANY}."

ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder, as `dcnn train` writes it.")
]
NewModelFolder = Annotated[Path, typer.Option("--out", help="The model folder to write.")]
TrainFiles = Annotated[Path, typer.Argument(metavar="TRAIN", help=LABELLED_FILES)]
TrainFile = Annotated[
    Path,
    typer.Argument(metavar="TRAIN", help="Labelled texts: .csv, .tsv or .jsonl, also compressed."),
]
DevFile = Annotated[
    Path | None,
    typer.Option("--dev", help="Examples for model selection; by default a part of TRAIN."),
]
TextColumn = Annotated[
    str | None, typer.Option("--text-column", help="Column of the texts; guessed if not given.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", help="Column of the labels; guessed if not given.")
]
LabelsSeparator = Annotated[
    str | None,
    typer.Option(
        "--labels-separator",
        metavar="S",
        help="Multi-label: a cell holds any number of labels, separated by S, such as '|'.",
    ),
]
LabelColumns = Annotated[
    str | None,
    typer.Option(
        "--label-columns",
        metavar="A,B,...",
        help="Multi-label: 0/1 columns, one per label (quote a name that has a comma).",
    ),
]
WeightColumn = Annotated[
    str | None, typer.Option("--weight-column", help="Column of example weights, if any.")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of the files.")]
NoHeader = Annotated[
    bool,
    typer.Option("--no-header", help="CSV and TSV start with data; columns are then 1, 2, ..."),
]
AbstainBelow = Annotated[
    float | None,
    typer.Option(
        "--abstain-below",
        metavar="P",
        min=0,
        max=1,
        help="Give no label to a text whose highest probability is below P.",
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings as TOML: [text] [model] [training].")
]
Device = Annotated[
    str,
    typer.Option("--device", metavar="auto|cpu|cuda", help="Where to train; auto prefers a GPU."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MarkdownFiles = Annotated[
    list[Path] | None,
    typer.Option("--write", help="Replace the marked block of this Markdown file; repeatable."),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of the corpora; by default DCNN_DATA, then the user's data folder."
    ),
]


def split_names(option: str, names: str | None) -> tuple[str, ...]:
    """The comma-separated names of an option; quotes keep a comma inside a name.

    Raises:
        UserError: the option is given but holds no name.
    """
    if names is None:
        return ()
    fields = next(csv.reader([names], skipinitialspace=True))
    found = tuple(name.strip() for name in fields if name.strip())
    if not found:
        raise UserError(f"{option} {names!r} holds no name; separate names by commas: a,b")
    return found


def read_config(
    path: Path | None, settings: Sequence[str] | None, **training: int | None
) -> Config:
    """The settings of a command: a TOML file, ``--set key=value``, and options like ``--epochs``.

    A setting without effect is refused here and not in ``Config``: model folders that were trained
    with one must still load, and a grid search may hold it beside other tokenizers.

    Args:
        path: the TOML file; by default the default settings.
        settings: ``key=value`` strings, which override the file.
        training: settings of the section ``training``, which override both; ``None`` is not given.

    Raises:
        ConfigError: a name or a value is wrong, or has no effect.
    """
    config = (load_toml(path) if path else DEFAULT).with_settings(settings or ())
    text = config.text
    if text.n_subwords != TextConfig.n_subwords and text.tokenizer not in ("bpe", "unigram"):
        raise ConfigError(
            f"text.n_subwords={text.n_subwords} is the number of subwords that bpe and unigram "
            f"learn, and text.tokenizer={text.tokenizer} learns none; set text.tokenizer to bpe or "
            "unigram, or leave text.n_subwords out"
        )
    given = {name: value for name, value in training.items() if value is not None}
    return config.with_training(**given)


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(value: object) -> str:
    """A text or label without the control characters that a terminal would obey."""
    return _CONTROLS.sub("\ufffd", str(value))


def make_console(stderr: bool = False, quiet: bool = False) -> "Console":
    """A console that prints text as it is: a label such as ``[b]`` is not markup."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, markup=False, highlight=False, emoji=False)


def make_table(*columns: str, left: int = 1) -> "Table":
    """A plain table; the first ``left`` columns are left-aligned, the others hold numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def progress_bar(console: "Console", *columns: "str | ProgressColumn") -> "Progress":
    """A progress bar that disappears when done; nothing where the output is not a terminal."""
    from rich.progress import Progress

    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def count_progress(console: "Console", description: str) -> Iterator[Callable[[int], None]]:
    """A spinner with a running count; yields the function that updates the count.

    Args:
        console: where it is shown.
        description: with ``{count}`` where the number goes.
    """
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn(description.replace("{count}", "{task.completed:,.0f}"))
    with progress_bar(console, SpinnerColumn(), text, TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=None)
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

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_sizes(console: "Console", train: "LabelledTexts | Corpus", n_dev: int) -> None:
    """Print how many examples and labels there are."""
    kind = ", multi-label" if getattr(train, "multi_label", False) else ""
    console.print(
        f"{len(train):,} training and {n_dev:,} dev examples, {len(train.classes)} labels{kind}"
    )
