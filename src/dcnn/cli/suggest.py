"""``dcnn suggest``: which texts to label next, as a file to fill in."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dcnn.batch_predict.lines import SEPARATOR
from dcnn.cli import console as cli
from dcnn.data.readers import SUGGESTED, read_rows
from dcnn.data.tables import write_table
from dcnn.errors import DataError, UserError
from dcnn.inspection.similar import suggest as suggest_texts
from dcnn.predictor import Predictor


@cli.grouped
def suggest(
    model: cli.ModelFolder,
    pool: Annotated[Path, Argument(metavar="POOL")],
    out: Annotated[Path, Option(metavar="FILE")],
    reading: cli.TextTable,
    n: Annotated[int, Option("--n", min=1, max=2000)] = 50,
    overwrite: cli.Overwrite = False,
) -> None:
    """Choose texts of a pool to label next: uncertain ones that are unlike each other.

    FILE has a column `label` to fill in, next to the predicted label and its probability; then
    train on it with `dcnn train FILE --start-from MODEL`. Rows without a label are left out there.
    """
    cli.check_output_table("--out", out, pool)
    if out.exists() and not overwrite:
        raise UserError(
            f"{out} exists and may have labels that were filled in; choose another --out, or pass "
            "--overwrite to replace it"
        )
    columns = reading()
    predictor = Predictor.load(model)
    console = cli.make_console(stderr=True)
    texts: list[str] = []
    with cli.count_progress(console, "{count} texts") as report:
        for row in read_rows(pool, columns, labels=False):
            texts.append(row.text)
            if len(texts) % 1000 == 0:
                report(len(texts))
    found = suggest_texts(predictor, texts, n)
    if not found:
        raise DataError(f"{pool} has no text that could be labelled; give texts, one per row")
    rows: list[tuple[Any, ...]] = [
        (one.text, "", SEPARATOR.join(map(str, one.predicted)), round(one.probability, 6))
        for one in found
    ]
    write_table(out, dict(zip(SUGGESTED, map(list, zip(*rows, strict=True)), strict=True)))
    several = f" --labels-separator '{SEPARATOR}'" if predictor.multi_label else ""
    console.print(
        f"{len(found):,} of {len(texts):,} texts are in {out}; fill in the column label, then: "
        f"dcnn train {out} --start-from {model} --out NEW{several}"
    )
