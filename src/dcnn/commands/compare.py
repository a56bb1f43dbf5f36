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
    from dcnn.compare import Contender, Place

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
        from dcnn.compare import RunOptions, markdown, measure, ranked, remarks
    except ImportError:
        raise MissingExtraError("Comparing", "train") from None
    contenders, left_out = _choose(options.models)
    for one in left_out:
        console.print(one["line"], soft_wrap=True)
    if not contenders:
        raise UserError("--models: none of them is installed; add one of ours, such as dcnn")
    assert test is not None  # noqa: S101
    run_options = RunOptions(train, dev, test)
    with _folder(options.out) as folder:
        scores = measure(
            contenders, run_options, options.seeds, Path(folder), lambda line: console.print(line)
        )
    places = ranked(scores)
    lines = remarks(places, len(test.texts), options.seeds)
    described = {
        "train": options.data.name,
        "test": options.test.name,
        "examples": {"train": len(train.texts), "test": len(test.texts)},
        "seeds": options.seeds,
        "models": [place.to_dict() for place in places],
        "left_out": left_out,
    } | _provenance()
    if options.as_json:
        print(json.dumps(described))
    else:
        _print(make_console(), places, lines)
    if options.out is not None:
        _write(console, options.out, places, markdown(places, lines), described)


def _choose(models: str | None) -> "tuple[list[Contender], list[dict[str, str]]]":
    """Those that take part, and for each that cannot a line that says how it could."""
    from dcnn import compare as rivals
    from dcnn.compare import our_contenders

    known = our_contenders() | rivals.rival_contenders()
    names = list(known)
    if models is not None:
        names = list(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise UserError(f"--models {models}: take one or more of {', '.join(known)}")
    missing = [name for name in names if name in rivals.INSTALL and not rivals.is_installed(name)]
    left_out = [
        {
            "model": name,
            "install": rivals.INSTALL[name],
            "line": f"{name} is left out, it is not installed: {rivals.INSTALL[name]}",
        }
        for name in missing
    ]
    return [known[name] for name in names if name not in missing], left_out


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


def _print(console: Console, places: "list[Place]", lines: list[str]) -> None:
    from dcnn.compare import COLUMNS, cells

    table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for place in places:
        table.add_row(*cells(place))
    console.print(table)
    for line in lines:
        console.print(line)


def _write(
    console: Console,
    folder: Path,
    places: "list[Place]",
    table: str,
    described: dict[str, Any],
) -> None:
    from dcnn.compare import plot

    contents = {TABLE: table, JSON: json.dumps(described, indent=1) + "\n"}
    try:
        contents[PLOT] = plot(places)
    except MissingExtraError as error:
        console.print(f"No plot: {error}", soft_wrap=True)
    for name, text in contents.items():
        with write_atomically(folder / name) as stream:
            stream.write(text.encode())
    console.print(
        f"The table{', the plot' if PLOT in contents else ''} and the models are in {folder}"
    )
