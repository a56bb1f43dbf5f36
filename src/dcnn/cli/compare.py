"""``dcnn compare``: several models on one test set, in a table and a plot."""

import json
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from typer import Option

from dcnn.cli import console as cli
from dcnn.cli.distill import read_unlabelled
from dcnn.data.readers import read_examples
from dcnn.errors import MissingExtraError, UserError, needs_extra
from dcnn.files import make_folder, write_atomically

JSON, TABLE, PLOT = "comparison.json", "comparison.md", "comparison.svg"


@cli.grouped
def compare(
    data: cli.TrainFile,
    test: Annotated[Path, Option()],
    reading: Annotated[
        cli.ReadTable, cli.table_options, "text_column label_column encoding no_header"
    ],
    dev: Path | None = None,
    models: str | None = None,
    teacher: Annotated[str | None, Option(metavar="ENCODER")] = None,
    unlabelled: list[Path] | None = None,
    setfit_base: Annotated[str | None, Option(metavar="ENCODER")] = None,
    seeds: Annotated[int, Option(min=1, max=100)] = 1,
    as_json: cli.Json = False,
    out: Path | None = None,
) -> None:
    """Train several kinds of models and compare them on a test set.

    Each is trained with its usual settings; dcnn, max-tdnn and nbow are ensembles of the same size.
    The table has accuracy and macro F1, training time, size on disk, time per text and texts per
    second. Models whose accuracy does not differ significantly from the best one's are marked. Our
    networks and the teacher hold out a part of TRAIN as dev unless --dev is given or examples are
    few; most others learn from all of TRAIN. Without --unlabelled the teacher labels texts made of
    the words of TRAIN, which helps less.
    """
    console = cli.make_console(stderr=True)
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} exists and is not empty; name a new folder")
    with needs_extra("Comparing", "train"):
        from dcnn import compare as comparison
        from dcnn.experiments import results as provenance
    if unlabelled and teacher is None:
        raise UserError("--unlabelled needs a teacher that labels these texts; pass --teacher")
    known = comparison.all_candidates(teacher or "", setfit_base or comparison.SETFIT_BASE)
    chosen = list(dict.fromkeys(cli.split_names("--models", models)))
    if any(name not in known for name in chosen):
        raise UserError(f"--models {models}: choose from {', '.join(known)}")
    without = [name for name in known if known[name].needs_teacher and teacher is None]
    if without and not chosen:
        console.print(f"{', '.join(without)} are left out: pass --teacher to compare them")
    for name in chosen:
        if name in without:
            raise UserError(f"--models {name} starts from a pretrained encoder; pass --teacher")
    names = chosen or [name for name in known if name not in without]
    candidates = [known[name] for name in names if known[name].is_installed]
    left_out = [
        {
            "model": name,
            "install": known[name].install,
            "line": f"{name} is left out, it is not installed: {known[name].install}",
        }
        for name in names
        if not known[name].is_installed
    ]
    for missing in left_out:
        console.print(missing["line"])
    if not candidates:
        raise UserError("--models: none of them is installed; add one of ours, such as dcnn")
    columns = reading()
    train, dev_set, test_set = read_examples(data, dev, test, columns)
    assert test_set is not None  # noqa: S101
    texts = read_unlabelled(unlabelled or (), columns)
    compared = comparison.ComparisonData(train, dev_set, test_set, texts)
    if out is not None:
        make_folder(out)
    with tempfile.TemporaryDirectory() if out is None else nullcontext(str(out)) as folder:
        scores = comparison.measure(candidates, compared, seeds, Path(folder), console.print)
    ranking = comparison.rank(scores)
    remarks = comparison.remarks(ranking, len(test_set.texts), seeds)
    described = {
        "train": data.name,
        "test": test.name,
        "examples": {"train": len(train.texts), "test": len(test_set.texts)}
        | ({"unlabelled": len(texts)} if texts else {}),
        "seeds": seeds,
        "models": [one.to_dict() for one in ranking],
        "left_out": left_out,
        "hardware": provenance.hardware("cpu"),
        "versions": provenance.versions(),
    }
    if as_json:
        print(json.dumps(described))
    else:
        table = cli.make_table(*comparison.COLUMNS)
        table.collapse_padding, table.pad_edge = True, False
        for column in table.columns:
            column.no_wrap = True
        for one in ranking:
            table.add_row(*one.cells(separator="\n"))  # a line of its own: 80 columns are full
        stdout = cli.make_console()
        stdout.print(table)
        for line in remarks:
            stdout.print(line)
    if out is None:
        return
    contents = {
        TABLE: comparison.markdown(ranking, remarks),
        JSON: json.dumps(described, indent=1) + "\n",
    }
    try:
        contents[PLOT] = comparison.plot(ranking)
    except MissingExtraError as error:
        console.print(f"No plot: {error}")
    for name, text in contents.items():
        with write_atomically(out / name) as stream:
            stream.write(text.encode())
    plotted = ", the plot" if PLOT in contents else ""
    console.print(f"The table{plotted} and the models are in {out}")
