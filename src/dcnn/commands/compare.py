"""``dcnn compare``: several models on one test set, in a table and a plot."""

import json
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from dcnn.commands.examples import read_examples
from dcnn.data.readers import TableOptions
from dcnn.errors import MissingExtraError, StorageError, UserError
from dcnn.files import write_atomically
from dcnn.terminal import make_console

if TYPE_CHECKING:
    from dcnn.compare import Candidate, Ranked

JSON, TABLE, PLOT = "comparison.json", "comparison.md", "comparison.svg"


@dataclass(frozen=True)
class CompareOptions:
    """The options of the command; see its help."""

    data: Path
    test: Path
    dev: Path | None
    columns: TableOptions
    models: str | None
    seeds: int
    as_json: bool
    out: Path | None


def run_compare(options: CompareOptions) -> None:
    """Train, score, time and show."""
    console = make_console(stderr=True)
    out = options.out
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} exists and is not empty; name a new folder")
    train, dev, test = read_examples(options.data, options.dev, options.test, options.columns)
    try:
        from dcnn.compare import ComparisonData, markdown, measure, rank, remarks
    except ImportError:
        raise MissingExtraError("Comparing", "train") from None
    candidates, left_out = _choose(options.models)
    for one in left_out:
        console.print(one["line"], soft_wrap=True)
    if not candidates:
        raise UserError("--models: none of them is installed; add one of ours, such as dcnn")
    assert test is not None  # noqa: S101
    compared = ComparisonData(train, dev, test)
    with _folder(options.out) as folder:
        scores = measure(
            candidates, compared, options.seeds, Path(folder), lambda line: console.print(line)
        )
    ranking = rank(scores)
    lines = remarks(ranking, len(test.texts), options.seeds)
    described = {
        "train": options.data.name,
        "test": options.test.name,
        "examples": {"train": len(train.texts), "test": len(test.texts)},
        "seeds": options.seeds,
        "models": [one.to_dict() for one in ranking],
        "left_out": left_out,
    } | _provenance()
    if options.as_json:
        print(json.dumps(described))
    else:
        _print(make_console(), ranking, lines)
    if options.out is not None:
        _write(console, options.out, ranking, markdown(ranking, lines), described)


def _choose(models: str | None) -> "tuple[list[Candidate], list[dict[str, str]]]":
    """The candidates, and for each that is not installed a line that says how to install it."""
    from dcnn.compare import all_candidates

    known = all_candidates()
    names = list(known)
    if models is not None:
        names = list(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise UserError(f"--models {models}: take one or more of {', '.join(known)}")
    left_out = [
        {
            "model": name,
            "install": known[name].install,
            "line": f"{name} is left out, it is not installed: {known[name].install}",
        }
        for name in names
        if not known[name].is_installed
    ]
    return [known[name] for name in names if known[name].is_installed], left_out


def _folder(out: Path | None) -> AbstractContextManager[str | Path]:
    if out is None:
        return tempfile.TemporaryDirectory()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out} cannot be made ({error.strerror})") from error
    return nullcontext(out)


def _provenance() -> dict[str, Any]:
    from dcnn.experiments import results as provenance

    return {"hardware": provenance.hardware("cpu"), "versions": provenance.versions()}


def _print(console: Console, ranking: "list[Ranked]", lines: list[str]) -> None:
    from dcnn.compare import COLUMNS

    table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for one in ranking:
        table.add_row(*one.cells())
    console.print(table)
    for line in lines:
        console.print(line)


def _write(
    console: Console,
    folder: Path,
    ranking: "list[Ranked]",
    table: str,
    described: dict[str, Any],
) -> None:
    from dcnn.compare import plot

    contents = {TABLE: table, JSON: json.dumps(described, indent=1) + "\n"}
    try:
        contents[PLOT] = plot(ranking)
    except MissingExtraError as error:
        console.print(f"No plot: {error}", soft_wrap=True)
    for name, text in contents.items():
        with write_atomically(folder / name) as stream:
            stream.write(text.encode())
    console.print(
        f"The table{', the plot' if PLOT in contents else ''} and the models are in {folder}"
    )
