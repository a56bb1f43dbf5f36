"""``dcnn index``: keep labelled texts and their features in a model folder, to find them again."""

import random
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dcnn.cli import console as cli
from dcnn.data.readers import Row, read_rows
from dcnn.files import show_size
from dcnn.inspection.similar import LONGEST_TEXT, MOST_TEXTS, TextIndex
from dcnn.predictor import Predictor


@cli.grouped
def index(
    model: cli.ModelFolder,
    file: Annotated[Path, Argument(metavar="FILE")],
    reading: Annotated[
        cli.ReadTable,
        cli.table_options,
        "text_column label_column labels_separator encoding no_header",
    ],
    limit: Annotated[int, Option(min=1, max=1_000_000)] = MOST_TEXTS,
) -> None:
    """Store texts in a model folder, so that explanations show the most similar ones.

    FILE is usually the training file. Of more texts than --limit a random sample is stored. The
    index holds texts and labels as they are, with their features in the network, so whoever gets
    the folder can read them; `dcnn push` leaves it out. `dcnn explain --similar`, the server
    and the page use it.
    """
    predictor = Predictor.load(model)
    columns = reading()
    console, chance = cli.make_console(stderr=True), random.Random(0)  # noqa: S311
    kept: list[Row] = []
    with cli.count_progress(console, "{count} texts") as report:
        usable = 0
        for number, row in enumerate(read_rows(file, columns, labels=True), start=1):
            if number % 1000 == 0:
                report(number)
            if not row.text.strip() or len(row.text) > LONGEST_TEXT:
                continue
            usable += 1
            if len(kept) < limit:
                kept.append(row)
            elif (place := chance.randrange(usable)) < limit:  # each text has the same chance
                kept[place] = row
    kept.sort(key=lambda row: row.place)
    found = TextIndex.build(predictor, [row.text for row in kept], [row.label for row in kept])
    size = found.save(model)
    console.print(
        f"{len(found):,} of {number:,} texts are in {model} ({show_size(size)}); try: "
        f"dcnn explain {model} 'a text' --similar 5"
    )
