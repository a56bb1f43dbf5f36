"""What the commands share: option types, the settings they read, consoles, progress bars, Ctrl-C.

An option that several commands take is declared here once, unless its type says all.
"""

import csv
import datetime
import inspect
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dcnn import __version__
from dcnn.cli import QUIET
from dcnn.errors import ConfigError, UserError

if TYPE_CHECKING:  # rich takes longer to import than a prediction takes
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from dcnn.config import Config
    from dcnn.data import labels, readers, store
    from dcnn.training.callbacks import Callback

CONTINUE = "the same command with --resume continues from there"

# An option is named like its parameter where no other name is given here.
ModelFolder = Annotated[Path, Argument(metavar="MODEL")]
NewModelFolder = Annotated[Path, Option()]
TrainFile = Annotated[Path, Argument(metavar="TRAIN")]
LabelsSeparator = Annotated[str | None, Option(metavar="S")]
LabelColumns = Annotated[str | None, Option(metavar="A,B,...")]
MultiLabel = Annotated[bool | None, Option("--multi-label/--single-label", show_default=False)]
NoHeader = Annotated[bool, Option("--no-header")]
Probability = Annotated[float | None, Option(metavar="P", min=0, max=1)]
OutOfScope = Annotated[str | None, Option(metavar="LABEL")]
OutOfScopeFile = Annotated[Path | None, Option(metavar="FILE")]
Settings = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE")]
Count = Annotated[int, Option(min=1)]
Threads = Annotated[int, Option(min=1, max=1024)]
OptionalCount = Annotated[int | None, Option(min=1)]
Device = Annotated[str, Option(metavar="auto|cpu|cuda")]
Json = Annotated[bool, Option("--json")]
Resume = Annotated[bool, Option("--resume")]
Overwrite = Annotated[bool, Option("--overwrite")]
DataFolder = Annotated[Path | None, Option("--data")]


def split_names(option: str, names: str | None) -> tuple[str, ...]:
    """The comma-separated names of an option; quotes keep a comma inside a name."""
    if names is None:
        return ()
    fields = next(csv.reader([names], skipinitialspace=True))
    found = tuple(name.strip() for name in fields if name.strip())
    if not found:
        raise UserError(f"{option} {names!r} holds no name; separate names by commas: a,b")
    return found


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options, after its own.

    A parameter annotated with a function receives that function with its options already bound
    (``partial``), so that the command decides when they are checked.
    """
    own, groups = [], {}
    for parameter in inspect.signature(command).parameters.values():
        function, *names = getattr(parameter.annotation, "__metadata__", (None,))
        if inspect.isfunction(function):
            known = inspect.signature(function).parameters
            groups[parameter.name] = function, [known[name] for name in names[0].split()]
        else:
            own.append(parameter)

    every = [*own, *(option for _, options in groups.values() for option in options)]
    signature = inspect.Signature(every)

    @wraps(command)
    def run(*arguments: Any, **named: Any) -> None:
        given = signature.bind(*arguments, **named).arguments
        for group, (function, options) in groups.items():
            chosen = {one.name: given.pop(one.name) for one in options if one.name in given}
            given[group] = partial(function, **chosen)
        command(**given)

    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in every}
    return run


def table_options(
    text_column: str | None = None,
    label_column: str | None = None,
    labels_separator: LabelsSeparator = None,
    label_columns: LabelColumns = None,
    multi_label: MultiLabel = None,
    weight_column: str | None = None,
    encoding: str = "utf-8",
    no_header: NoHeader = False,
) -> "readers.TableOptions":
    """How texts, and labels of any form, are read."""
    from dcnn.data.readers import TableOptions

    names = split_names("--label-columns", label_columns)
    return TableOptions(
        *(text_column, label_column, weight_column, encoding, not no_header),
        *(labels_separator, names, multi_label),
    )


def read_config(
    config: Path | None = None,
    settings: Settings = None,
    seed: int | None = None,
    **training: int | None,
) -> "Config":
    """The settings of a TOML file, overridden by ``--set key=value``, and by ``--epochs`` and such.

    A setting without effect is refused here and not in ``Config``: model folders that were trained
    with one must still load, and a grid search may hold it beside other tokenizers.
    """
    from dcnn.config import DEFAULT, TextConfig, load_toml

    found = (load_toml(config) if config else DEFAULT).with_settings(settings or ())
    text = found.text
    if text.n_subwords != TextConfig.n_subwords and text.tokenizer not in ("bpe", "unigram"):
        raise ConfigError(
            f"text.n_subwords={text.n_subwords} is the number of subwords that bpe and unigram "
            f"learn, and text.tokenizer={text.tokenizer} learns none; set text.tokenizer to bpe or "
            "unigram, or leave text.n_subwords out"
        )
    training |= {"seed": seed}
    return found.with_training(**{k: value for k, value in training.items() if value is not None})


# Groups of options: the function that takes them, and which of them a command has.
ReadTable = Callable[..., "readers.TableOptions"]
TextTable = Annotated[ReadTable, table_options, "text_column encoding no_header"]
LabelTable = Annotated[
    ReadTable,
    table_options,
    "text_column label_column labels_separator label_columns multi_label encoding no_header",
]
RunConfig = Annotated[Callable[..., "Config"], read_config, "config settings seed"]


def check_output_table(option: str, path: Path, *sources: Path | None) -> None:
    """Check before any work is done that a table can be written, and over none of ``sources``."""
    from dcnn.data.readers import is_shard
    from dcnn.data.tables import check_table

    check_table(option, path)
    for source in filter(None, sources):
        if is_shard(source, path):
            raise UserError(
                f"{option} {path} is a file of {source}, which is read; name another one"
            )


def read_out_of_scope(path: Path | None, columns: "readers.TableOptions") -> list[str]:
    """The texts of ``--out-of-scope-file``; those of a file without columns need no name."""
    from dcnn.data.readers import TableOptions, read_rows
    from dcnn.files import bare_suffix

    if path is None:
        return []
    column = None if bare_suffix(path) == ".txt" else columns.text_column
    options = TableOptions(column, encoding=columns.encoding, header=columns.header)
    texts = [row.text for row in read_rows(path, options, labels=False) if row.text.strip()]
    if not texts:
        raise UserError(f"--out-of-scope-file {path} has no text; leave it out, or name another")
    return texts


def describe_threshold(record: dict[str, Any]) -> str:
    """A sentence on a threshold of abstention that was chosen."""
    outside = ""
    if record["out_of_scope_examples"]:
        outside = (
            f", with {record['out_of_scope_answered']:,} of {record['out_of_scope_examples']:,} "
            "out-of-scope texts among those with a label"
        )
    return (
        f"Abstaining below {record['threshold']:.4f}: coverage {100 * record['coverage']:.1f} % on "
        f"{record['data']}, precision {100 * record['precision']:.1f} % there (lower bound at "
        f"95 %: {100 * record['precision_bound']:.1f} %){outside}"
    )


def read_for_resampling(source: Path, columns: "readers.TableOptions") -> "labels.LabelledTexts":
    """All examples, of two labels or more; a label may have a single example."""
    from dcnn.data.labels import check_training_labels
    from dcnn.data.readers import read_labelled

    examples = read_labelled(source, columns)
    check_training_labels(examples, splits=False)
    return examples


def score_name(name: str) -> str:
    """A score as people write it."""
    return name.replace("_f1", " F1").replace("_", " ")


def printable(value: object) -> str:
    """A text or label without the control characters that a terminal would obey."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\ufffd", str(value))


def is_quiet() -> bool:
    """Whether the user wants results, warnings and errors only."""
    return logging.getLogger("dcnn").level == QUIET


def note(message: str) -> None:
    """Print a line on standard error, unless the user wants none."""
    if not is_quiet():
        print(message, file=sys.stderr)


def make_console(stderr: bool = False, quiet: bool = False) -> "Console":
    """A console that prints text as it is: ``[b]`` is a label, not markup, and lines stay whole."""
    from rich.console import Console

    quiet = quiet or (stderr and is_quiet())
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


def run_metadata(data: Path, dev: Path | None = None, test: Path | None = None) -> dict[str, Any]:
    """What a model folder records about the command that trained it."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    files = {"data": data, "dev_data": dev, "test_data": test}
    names = {key: file.name or file.resolve().name for key, file in files.items() if file}
    return names | {"dcnn": __version__, "date": today}


def print_sizes(
    console: "Console", train: "labels.LabelledTexts | store.Corpus", n_dev: int
) -> None:
    """Print how many examples and labels there are."""
    classes = f"{len(train.classes)} labels"
    kind = ", multi-label" if getattr(train, "multi_label", False) else ""
    console.print(f"{len(train):,} training and {n_dev:,} dev examples, {classes}{kind}")
    targets: Any = getattr(train, "targets", None)
    if kind and (targets % 1).any() and (abs(targets.sum(axis=1) - 1) < 0.01).all():
        console.print(
            "The probabilities of each text sum to 1: if each has one label, pass --single-label"
        )
