"""``dcnn compare``: several models on one test set, in a table and a plot."""

import json
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dcnn.cli import console as cli
from dcnn.data.readers import TableOptions, read_examples
from dcnn.errors import MissingExtraError, StorageError, UserError
from dcnn.files import write_atomically

if TYPE_CHECKING:
    from dcnn.compare import Candidate, Score

JSON, TABLE, PLOT = "comparison.json", "comparison.md", "comparison.svg"


def compare(
    data: cli.TrainFile,
    test: Annotated[Path, typer.Option(help="Examples to score every model on.")],
    dev: cli.DevFile = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: dcnn, max-tdnn, nbow, nb, binb, svm, maxent, fasttext, "
            "setfit; by default all that are installed."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Runs of every model that has a seed.")
    ] = 1,
    text_column: cli.TextColumn = None,
    label_column: cli.LabelColumn = None,
    encoding: cli.Encoding = "utf-8",
    no_header: cli.NoHeader = False,
    as_json: cli.Json = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the table, a plot and our models.")
    ] = None,
) -> None:
    """Train several kinds of models and compare them on a test set.

    Each is trained with its usual settings. The table has accuracy and macro F1, training time,
    size on disk, time per text and texts per second. Models whose accuracy does not differ
    significantly from the best one's are marked. Our networks hold out a part of TRAIN for early
    stopping unless --dev is given; the others learn from all of TRAIN.

    \b
    Examples:
      dcnn compare train.csv --test test.csv
      dcnn compare train.csv --test test.csv --models dcnn,binb,svm --seeds 5 --out comparison
      dcnn compare train.csv --test test.csv --json > comparison.json
    """
    console = cli.make_console(stderr=True)
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} exists and is not empty; name a new folder")
    columns = TableOptions(text_column, label_column, encoding=encoding, header=not no_header)
    train, dev_set, test_set = read_examples(data, dev, test, columns)
    try:
        from dcnn.compare import ComparisonData, markdown, measure, rank, remarks
        from dcnn.experiments import results as provenance
    except ImportError:
        raise MissingExtraError("Comparing", "train") from None
    candidates, left_out = _choose(models)
    for missing in left_out:
        console.print(missing["line"], soft_wrap=True)
    if not candidates:
        raise UserError("--models: none of them is installed; add one of ours, such as dcnn")
    assert test_set is not None  # noqa: S101
    compared = ComparisonData(train, dev_set, test_set)
    with _models_folder(out) as folder:
        scores = measure(candidates, compared, seeds, Path(folder), console.print)
    ranking = rank(scores)
    lines = remarks(ranking, len(test_set.texts), seeds)
    described = {
        "train": data.name,
        "test": test.name,
        "examples": {"train": len(train.texts), "test": len(test_set.texts)},
        "seeds": seeds,
        "models": [one.to_dict() for one in ranking],
        "left_out": left_out,
        "hardware": provenance.hardware("cpu"),
        "versions": provenance.versions(),
    }
    if as_json:
        print(json.dumps(described))
    else:
        _print(cli.make_console(), ranking, lines)
    if out is not None:
        _write(console, out, ranking, markdown(ranking, lines), described)


def _choose(models: str | None) -> "tuple[list[Candidate], list[dict[str, str]]]":
    """The models to train, and for each that is not installed how to install it."""
    from dcnn.compare import all_candidates

    known = all_candidates()
    names = list(dict.fromkeys(cli.split_names("--models", models)) or known)
    if any(name not in known for name in names):
        raise UserError(f"--models {models}: choose from {', '.join(known)}")
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


def _models_folder(out: Path | None) -> AbstractContextManager[str | Path]:
    if out is None:
        return tempfile.TemporaryDirectory()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out} cannot be created ({error.strerror})") from error
    return nullcontext(out)


def _print(console: Console, ranking: "list[Score]", lines: list[str]) -> None:
    from dcnn.compare import COLUMNS

    table = cli.make_table(*COLUMNS)
    table.collapse_padding, table.pad_edge = True, False
    for column in table.columns:
        column.no_wrap = True
    for one in ranking:
        table.add_row(*one.cells())
    console.print(table)
    for line in lines:
        console.print(line)


def _write(
    console: Console, folder: Path, ranking: "list[Score]", table: str, described: dict[str, Any]
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
