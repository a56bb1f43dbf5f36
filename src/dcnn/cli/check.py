"""``dcnn check``: what may be wrong with labelled texts, before and after a model."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from dcnn.cli import console as cli
from dcnn.data import check as checks
from dcnn.data.check import ERROR, LEVELS, Finding
from dcnn.data.columns import shown
from dcnn.data.labels import LabelledTexts, check_form
from dcnn.data.readers import Row, read_evaluation_set, read_labelled
from dcnn.data.tables import write_table
from dcnn.errors import UserError
from dcnn.predictor import Predictor

EXAMPLES = 3  # of each kind of finding, printed
LABELS = 10  # printed
LONGEST = 60  # characters of a text


@cli.grouped
def check(
    data: cli.TrainFile,
    reading: cli.LabelTable,
    run: cli.RunConfig,
    test: Path | None = None,
    model: Annotated[Path | None, Option(metavar="MODEL")] = None,
    folds: Annotated[int, Option(min=0)] = 5,
    out: Annotated[Path | None, Option(metavar="FILE")] = None,
    device: cli.Device = "auto",
    as_json: cli.Json = False,
) -> None:
    """Show what may be wrong with labelled texts.

    Looks for duplicates and near duplicates, the same text with different labels, texts of the test
    set in TRAIN, missing, rare and unbalanced labels, empty and long texts, texts in another script
    than the others, and likely label errors: labels that models trained on the other texts would
    not give.

    The exit code is 0 if nothing is serious and 1 if there are findings of the level `error`: texts
    without a label, conflicting labels, leakage, a single label, or labels that TRAIN (or the
    model) does not have.
    """
    if out is not None:
        cli.check_output_table("--out", out, data, test)
    if folds == 1:
        raise UserError("--folds 1 trains on nothing; take 2 or more, or 0 to leave it out")
    columns = reading()
    run_config = run()
    predictor = None if model is None else Predictor.load(model)
    unlabelled: list[Row] = []
    train = read_labelled(data, columns, unlabelled)
    test_set = read_evaluation_set(test, columns)
    if test_set is not None:
        check_form(test_set, multi_label=train.multi_label, of=train.source)
    if predictor is not None:
        check_form(train, multi_label=predictor.multi_label, of=f"the training set of {model}")
    found = checks.check_texts(train.with_hard_labels(), test_set)
    found += [
        Finding("no label", str(row.place), text=row.text, detail="the label is empty")
        for row in unlabelled
    ]
    if predictor is not None:
        found += _judged_by(predictor, train)
    elif folds and not any(one.kind == "one label" for one in found):
        found += _cross_validated(train, run_config, folds, device)
    found = checks.sort_findings(found)
    if out is not None:
        rows = [{"level": one.level} | asdict(one) for one in found]
        names = ("level", "kind", "where", "label", "text", "detail", "score")
        write_table(out, {name: [row[name] for row in rows] for name in names})
    about = checks.describe_texts(train)
    counts = Counter(one.kind for one in found)
    if as_json:
        plain = [{"level": one.level} | asdict(one) for one in found]
        print(json.dumps({"data": about, "counts": counts, "findings": plain}))
    else:
        _print(found, counts, about, out)
    if any(one.level == ERROR for one in found):
        raise typer.Exit(1)


def _judged_by(predictor: Predictor, train: LabelledTexts) -> list[Finding]:
    """Likely label errors by a model, and labels that it does not know."""
    names = [str(label) for label in predictor.classes]
    known = {number for number, label in enumerate(train.classes) if str(label) in names}
    hard = train.with_hard_labels()
    if train.multi_label:
        others = [number for number in range(len(train.classes)) if number not in known]
        is_known = ~hard.targets[:, others].any(axis=1)
    else:
        is_known = np.isin(hard.targets, list(known))
    found = [
        Finding(
            *("unknown label", hard.where(index), str(hard.labels[index]), hard.texts[index]),
            detail=f"the model does not know {shown(str(hard.labels[index]))}",
        )
        for index in np.flatnonzero(~is_known).tolist()
    ]
    judged = hard.select(np.flatnonzero(is_known))
    if len(judged):
        judged = judged.with_classes(names)
        found += checks.find_label_errors(judged, predictor.probabilities(judged.texts))
    return found


def _cross_validated(train: LabelledTexts, config: Any, folds: int, device: str) -> list[Finding]:
    """Likely label errors by models that did not learn the texts."""
    if len(set(train.labels)) == len(train):
        return []  # no label has two examples
    from dcnn.training.callbacks import TrainingBar
    from dcnn.training.fit import RunOptions
    from dcnn.training.resampling import cross_validation

    console = cli.make_console(stderr=True)
    with TrainingBar(console, f"fold 1/{folds}  ", quiet=True) as bar:

        def report(done: int, _: object) -> None:
            bar.name = f"fold {done + 1}/{folds}  "

        options = RunOptions(device, callback=bar)
        found = cross_validation(train, config, min(folds, len(train)), options, report)
    chosen = found.scored
    return checks.find_label_errors(found.examples.select(chosen), found.probabilities[chosen])


def _print(
    found: Sequence[Finding], counts: Counter[str], about: dict[str, Any], out: Path | None
) -> None:
    console = cli.make_console()
    labels = list(about["labels"].items())
    listed = ", ".join(f"{cli.printable(label)} {count:,}" for label, count in labels[:LABELS])
    more = f" and {len(labels) - LABELS} more" if len(labels) > LABELS else ""
    words = ", ".join(f"{name} {count:,}" for name, count in about["words"].items())
    scripts = ", ".join(f"{name} {count:,}" for name, count in about["scripts"].items())
    console.print(f"{about['texts']:,} texts, {len(labels)} labels: {listed}{more}")
    console.print(f"Words per text: {words}")
    console.print(f"Scripts: {scripts}")
    if not found:
        console.print("Nothing was found.")
        return
    console.print(f"\n{'level':<9}{'finding':<20}{'count':>7}", style="bold")
    for kind, count in sorted(counts.items(), key=lambda pair: list(LEVELS).index(pair[0])):
        console.print(f"{LEVELS[kind]:<9}{kind:<20}{count:>7,}")
        for one in [one for one in found if one.kind == kind][:EXAMPLES]:
            console.print(f"         {_line(one)}", style="dim")
    console.print()
    if out is not None:
        console.print(f"All findings are in {out}")
    else:
        console.print("--out FILE writes all findings")


def _line(one: Finding) -> str:
    text = cli.printable(one.text[:LONGEST] + "…" * (len(one.text) > LONGEST))
    return f"{one.where}: {cli.printable(one.detail)}" + (f" — {text}" if text else "")
