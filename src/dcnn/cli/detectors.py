"""``dcnn detectors``: the n-grams of a corpus that activate the feature detectors of a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text
from typer import Option

from dcnn.cli import console as cli
from dcnn.data.readers import read_rows
from dcnn.errors import UserError
from dcnn.files import check_place, standard_output, write_atomically
from dcnn.inspection import render
from dcnn.inspection.detector_ranking import Detector, check_dcnn
from dcnn.inspection.detectors import DetectorIndex, SelectedDetector, known_words, rank_detectors
from dcnn.inspection.explanation import class_number
from dcnn.predictor import Predictor

FEW = 10  # detectors shown in the terminal by default


@cli.grouped
def detectors(
    model: cli.ModelFolder,
    corpus: Annotated[Path, Option()],
    reading: cli.TextTable,
    layer: cli.OptionalCount = None,
    top: Annotated[int, Option(min=1, max=200)] = 5,
    find: Annotated[str | None, Option(metavar="WORD")] = None,
    of_class: Annotated[str | None, Option("--class", metavar="C")] = None,
    like: Annotated[str | None, Option(metavar="TEXT")] = None,
    detector: Annotated[str | None, Option(metavar="L:MAP:ROW")] = None,
    limit: cli.OptionalCount = None,
    as_json: cli.Json = False,
    out: Path | None = None,
) -> None:
    """Show the n-grams of a corpus that activate each feature detector.

    A detector of the first layer is one row of one map; it ranks all n-grams of its width. A
    detector of a higher layer ranks what it saw after pooling, which may be separated words. A
    name such as "_ not _" gives the words that are more frequent in the detector's n-grams than in
    the corpus, and their place. The numbers beside the classes are what its n-grams contribute to
    their logits. The corpus is read once, in bounded memory.
    """
    query = {"--find": find, "--class": of_class, "--like": like, "--detector": detector}
    given = [option for option, value in query.items() if value is not None]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} ask for different detectors; give one of them")
    if out is not None:
        render.choose_writer(out, render.REPORT_WRITERS)
        check_place("--out", out)
    standard_output("open it: the detectors are printed there")
    one = None if detector is None else _parse(detector, layer)
    layer = layer if one is None else one.layer
    predictor = Predictor.load(model)
    _check_layer(predictor, layer, one)
    if like is not None and not predictor.artifact.encoder.tokenizer(like):
        raise UserError("--like has no words, so no detector can react; give at least one")
    if find is not None:
        known_words(predictor, find)
    if of_class is not None:
        class_number(predictor, of_class)

    columns = reading()
    stderr = cli.make_console(stderr=True)
    with cli.count_progress(stderr, "reading the corpus: {count} texts") as report:
        texts = (row.text for row in read_rows(corpus, columns, labels=False))
        index = rank_detectors(predictor, texts, top, None if layer is None else [layer], report)
    chosen: Sequence[SelectedDetector]
    if one is not None:
        chosen, order = [SelectedDetector(one)], ""
    elif find is not None:
        chosen = list(map(SelectedDetector, index.find(find)))
        order = f"how much more of {cli.printable(find)!r} they hold than the corpus does"
    elif of_class is not None:
        chosen = index.for_class(of_class)
        order = f"their contribution to {cli.printable(of_class)}"
    elif like is not None:
        chosen = index.for_text(like)
        order = "how strongly they fire on the text"
    else:
        chosen = list(map(SelectedDetector, index.by_distinctiveness()))
        order = f"how much their {index.unit}s stand out against the corpus"
    if out is not None:
        with write_atomically(out) as stream:
            content = render.choose_writer(out, render.REPORT_WRITERS)(index, chosen[:limit])
            stream.write(content.encode("utf-8", "replace"))
    if as_json:
        print(index.to_json(chosen[:limit]))
        return
    console = cli.make_console()
    shown = chosen[: limit or FEW]
    if shown:
        console.print(_table(index, shown))
    console.print(render.corpus_summary(index))
    if not chosen:
        console.print(
            "No detector's strongest n-grams hold clearly more of "
            f"{cli.printable(find)!r} than the corpus does."
        )
    elif order:
        console.print(f"Shown: {len(shown)} of {len(chosen)}, ordered by {order}.")
    if len(shown) < len(chosen):
        console.print(
            f"More with --limit {len(chosen)}, or all in a file with --out detectors.html; others "
            "with --find WORD, --class C, --like TEXT or --detector LAYER:MAP:ROW."
        )
    if out is not None:
        console.print(f"They are in {out}.")


def _parse(text: str, layer: int | None) -> Detector:
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(
            f"--detector {text!r} must be three numbers, LAYER:MAP:ROW, for instance 1:0:16"
        )
    one = Detector(*map(int, parts))
    if layer not in (None, one.layer):
        raise UserError(f"--detector {one} is of layer {one.layer}, not of --layer {layer}")
    return one


def _check_layer(predictor: Predictor, layer: int | None, one: Detector | None) -> None:
    config = check_dcnn(predictor)
    if layer is not None and not 1 <= layer <= config.depth:
        option = "--layer" if one is None else f"--detector {one}: layer"
        raise UserError(f"{option} {layer} must be from 1 to {config.depth}")
    if one is None:
        return
    maps = config.maps[one.layer - 1]
    rows = config.dim if one.layer == 1 else config.rows(one.layer)  # before folding, and after it
    if one.map >= maps or one.row >= rows:
        raise UserError(
            f"--detector {one}: there is no detector {one}; those of layer {one.layer} are "
            f"{one.layer}:0:0 to {one.layer}:{maps - 1}:{rows - 1}"
        )


def _table(index: DetectorIndex, chosen: Sequence[SelectedDetector]) -> Table:
    """One section per detector; of an n-gram, the words that contribute most are in bold."""
    table = cli.make_table("detector", "value", "count", "n-gram")
    table.columns[0].no_wrap = True
    table.columns[3].justify = "left"
    for one in chosen:
        name = Text(cli.printable(index.name(one.detector)), style="bold")
        table.add_row(Text(str(one.detector), style="bold"), "", "", name)
        for note in filter(None, (one.note, render.class_contributions(index, one.detector))):
            table.add_row("", "", "", Text(cli.printable(note), style="dim"))
        for found in index.top(one.detector):
            words = [
                Text(cli.printable(part), "bold cyan" if strong else "")
                for part, strong in found.parts()
            ]
            table.add_row("", f"{found.value:+.3f}", f"{found.count:,}", Text(" ").join(words))
        table.add_section()
    return table
