"""``dcnn learning-curve``: scores against the number of examples; is more labelling worth it?"""

import json
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from typer import Option

from dcnn.cli import console as cli
from dcnn.data.labels import check_form
from dcnn.data.readers import read_evaluation_set
from dcnn.errors import needs_extra
from dcnn.files import write_atomically
from dcnn.plots import check_picture, draw_learning_curve

if TYPE_CHECKING:
    from dcnn.training.resampling import CurvePoint


@cli.grouped
def learning_curve(
    data: cli.TrainFile,
    reading: cli.LabelTable,
    run: cli.RunConfig,
    test: Path | None = None,
    steps: Annotated[int, Option(min=2, max=20)] = 5,
    draws: Annotated[int, Option(min=1, max=100)] = 5,
    plot: Annotated[Path | None, Option(metavar="FILE.svg|FILE.png")] = None,
    epochs: int | None = None,
    device: cli.Device = "auto",
    threads: cli.Threads = 1,
    as_json: cli.Json = False,
) -> None:
    """Show accuracy and macro F1 against the number of labelled texts: is more labelling worth it?

    Trains on all texts, on half of them, a quarter and so on, several times each, and scores on
    held-out texts. The last line says whether the last doubling of the texts improved accuracy.
    """
    if plot is not None:
        check_picture("--plot", plot)
    columns = reading()
    run_config = run(epochs=epochs)
    examples = cli.read_for_resampling(data, columns)
    test_set = read_evaluation_set(test, columns)
    if test_set is not None:
        check_form(test_set, multi_label=examples.multi_label, of=examples.source)
        test_set = test_set.with_classes(examples.classes)
    with needs_extra("A learning curve", "train"):
        import scipy.special  # noqa: F401  # for the sentence on the curve, in the end
    from dcnn.training import resampling
    from dcnn.training.callbacks import TrainingBar
    from dcnn.training.fit import RunOptions

    console = cli.make_console(stderr=True)
    measure = "micro F1" if examples.multi_label else "accuracy"
    with TrainingBar(console, quiet=True) as bar:

        def report(point: "CurvePoint") -> None:
            console.print(
                f"draw {point.draw + 1}/{draws}, {point.examples:,} examples: "
                f"{measure} {100 * point.accuracy:.2f} %  macro F1 {100 * point.macro_f1:.2f} %"
            )

        options = RunOptions(device, callback=bar, threads=threads)
        points = resampling.learning_curve(
            examples, run_config, test_set, steps, draws, options, report
        )
    sentence = resampling.judge_curve(points, measure)
    if plot is not None:
        drawn = [(point.examples, point.accuracy, point.macro_f1) for point in points]
        picture = draw_learning_curve(drawn, measure, data.name, plot.suffix.lower())
        with write_atomically(plot) as stream:
            stream.write(picture)
        cli.note(f"The curve is in {plot}.")
    if as_json:
        print(json.dumps({"points": [asdict(point) for point in points], "judgement": sentence}))
        return
    table = cli.make_table("examples", measure, "lowest", "highest", "macro F1", left=0)
    for size in sorted({point.examples for point in points}):
        some = [point for point in points if point.examples == size]
        firsts = [point.accuracy for point in some]
        cells = [fmean(firsts), min(firsts), max(firsts), fmean(p.macro_f1 for p in some)]
        table.add_row(f"{size:,}", *(f"{100 * value:.2f}" for value in cells))
    stdout = cli.make_console()
    stdout.print(table)
    stdout.print(sentence)
