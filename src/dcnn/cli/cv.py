"""``dcnn cv``: cross-validation, with the predictions for texts that were not learned."""

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Option

from dcnn.batch_predict.lines import probability_columns
from dcnn.cli import console as cli
from dcnn.data.tables import write_table
from dcnn.errors import UserError

if TYPE_CHECKING:
    from dcnn.metrics import Evaluation, LabelEvaluation
    from dcnn.training.resampling import OutOfFold

SCORES = ("accuracy", "micro_f1", "macro_f1", "subset_accuracy")


@cli.grouped
def cv(
    data: cli.TrainFile,
    reading: cli.LabelTable,
    run: cli.RunConfig,
    folds: Annotated[int, Option(min=2)] = 5,
    out_of_fold: Annotated[Path | None, Option(metavar="FILE")] = None,
    epochs: int | None = None,
    device: cli.Device = "auto",
    threads: cli.Threads = 1,
    as_json: cli.Json = False,
) -> None:
    """Cross-validate a classifier: every text is predicted by a model that did not learn it.

    Prints the scores of each fold, their mean and standard deviation, and the scores of all texts
    together with 95 % intervals. Folds are stratified by label and seeded; the only text of a label
    is in none. Each model is trained as by `dcnn train`, with a dev set of its own.
    """
    if out_of_fold is not None:
        cli.check_output_table("--out-of-fold", out_of_fold, data)
    columns = reading()
    run_config = run(epochs=epochs)
    examples = cli.read_for_resampling(data, columns)
    if folds > len(examples):
        raise UserError(
            f"--folds {folds} is more than the {len(examples)} texts of {data}; take fewer"
        )
    from dcnn.training.callbacks import TrainingBar
    from dcnn.training.fit import RunOptions
    from dcnn.training.resampling import cross_validation

    console = cli.make_console(stderr=True)
    with TrainingBar(console, f"fold 1/{folds}  ", quiet=True) as bar:

        def report(done: int, scores: "Evaluation | LabelEvaluation") -> None:
            shown = (f"{cli.score_name(k)} {100 * v:.2f} %" for k, v in _values(scores).items())
            console.print(f"fold {done}/{folds}: {'  '.join(shown)}")
            bar.name = f"fold {done + 1}/{folds}  "

        options = RunOptions(device, callback=bar, threads=threads)
        found = cross_validation(examples, run_config, folds, options, report)
    if out_of_fold is not None:
        write_table(out_of_fold, _columns(found))
        console.print(f"The out-of-fold predictions are in {out_of_fold}")
    parts = [np.flatnonzero(found.folds == fold) for fold in np.unique(found.folds[found.scored])]
    rows = [_values(found.scores(part)) for part in parts]
    names = list(rows[0])
    mean = {name: fmean(row[name] for row in rows) for name in names}
    spread = {name: stdev(row[name] for row in rows) for name in names}
    together, intervals = _values(found.scores(found.scored)), found.intervals()
    if as_json:
        described = {
            "examples": len(found.scored),
            "folds": [
                {"fold": number, "examples": len(part)} | row
                for number, (part, row) in enumerate(zip(parts, rows, strict=True), 1)
            ],
            "mean": mean,
            "standard_deviation": spread,
            **together,
            "intervals": {name: list(ends) for name, ends in intervals.items()},
        }
        print(json.dumps(described))
        return
    table = cli.make_table("fold", *map(cli.score_name, names), "texts")

    def add(title: str, values: dict[str, float], texts: str = "") -> None:
        table.add_row(title, *(f"{100 * values[name]:.2f}" for name in names), texts)

    for number, (part, row) in enumerate(zip(parts, rows, strict=True), 1):
        add(str(number), row, f"{len(part):,}")
    table.add_section()
    add("mean", mean)
    add("standard deviation", spread)
    add("all texts", together, f"{len(found.scored):,}")
    ends = [" to ".join(f"{100 * end:.2f}" for end in intervals[name]) for name in names]
    table.add_row("95 % interval", *ends, "")
    cli.make_console().print(table)


def _values(scores: "Evaluation | LabelEvaluation") -> dict[str, float]:
    return {name: float(value) for name, value in vars(scores).items() if name in SCORES}


def _columns(found: "OutOfFold") -> dict[str, list[Any]]:
    """The out-of-fold predictions as a table; a text that is in no fold is left out."""
    examples, chosen = found.examples, found.scored
    probabilities = found.probabilities[chosen]
    shares = probabilities.astype(float).round(6)
    labels = [str(label) for label in examples.classes]
    if found.thresholds is None:
        numbers = probabilities.argmax(axis=1)  # rounded, two may be equal
        predicted = {
            "predicted": [labels[number] for number in numbers],
            "probability": shares.max(axis=1).tolist(),
        }
        true = [str(examples.labels[index]) for index in chosen]
    else:
        over = probabilities >= found.thresholds[chosen]
        predicted = {
            "predicted": ["|".join(labels[n] for n in np.flatnonzero(row)) for row in over]
        }
        true = ["|".join(map(str, examples.labels[index])) for index in chosen]
    return {
        "where": [examples.where(index) for index in chosen],
        "text": [examples.texts[index] for index in chosen],
        "label": true,
        **predicted,
        "fold": (found.folds[chosen] + 1).tolist(),
        **dict(zip(probability_columns(labels), shares.T.tolist(), strict=True)),
    }
