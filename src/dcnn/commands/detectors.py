"""``dcnn detectors``: what the feature detectors of a network react to in a corpus."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dcnn.config import DCNNConfig
from dcnn.data.readers import TableOptions, read_rows
from dcnn.errors import UserError
from dcnn.files import check_place, standard_output, write_atomically
from dcnn.inspection.detector_ranking import Detection, Detector
from dcnn.inspection.detector_ranking import Progress as Report
from dcnn.inspection.detectors import (
    DetectorIndex,
    SelectedDetector,
    check_dcnn,
    known_words,
    rank_detectors,
)
from dcnn.inspection.explanation import class_number
from dcnn.inspection.render import (
    class_contributions,
    corpus_summary,
    report_json,
    report_writer,
)
from dcnn.predictor import Predictor
from dcnn.terminal import make_console, printable

FEW = 10  # detectors in the terminal, where nothing is said


@dataclass(frozen=True)
class DetectorsOptions:
    """What the command was asked.

    Attributes:
        model: the model folder.
        corpus: the file of texts.
        columns: how to read it.
        layer: one layer, or none for all.
        top: n-grams a detector.
        find: detectors by words.
        of_class: detectors by their contribution to a class.
        like: detectors by an example.
        detector: one, as LAYER:MAP:ROW.
        limit: detectors shown, or none for a few in the terminal and all elsewhere.
        as_json: print JSON.
        out: a file to write.
    """

    model: Path
    corpus: Path
    columns: TableOptions
    layer: int | None = None
    top: int = 5
    find: str | None = None
    of_class: str | None = None
    like: str | None = None
    detector: str | None = None
    limit: int | None = None
    as_json: bool = False
    out: Path | None = None


def run_detectors(options: DetectorsOptions) -> None:
    """Read the corpus once, print the detectors asked for, and write them where asked."""
    predictor, layers = _check(options)
    with _progress() as report:
        texts = (row.text for row in read_rows(options.corpus, options.columns, labels=False))
        index = rank_detectors(predictor, texts, options.top, layers, report)
    chosen = _choose(index, options)
    if options.out is not None:
        content = report_writer(options.out)(index, chosen[: options.limit])
        with write_atomically(options.out) as stream:
            stream.write(content.encode("utf-8", "replace"))
    if options.as_json:
        print(report_json(index, chosen[: options.limit]))
        return
    console = make_console()
    print_detectors(console, index, chosen[: options.limit or FEW])
    console.print(_rest(index, options, len(chosen)), soft_wrap=True)
    if options.out is not None:
        console.print(f"They are in {options.out}.", soft_wrap=True)


def _check(options: DetectorsOptions) -> tuple[Predictor, list[int] | None]:
    """Find every mistake that can be found before the corpus is read."""
    asked = {
        "--find": options.find,
        "--class": options.of_class,
        "--like": options.like,
        "--detector": options.detector,
    }
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} ask for different detectors; give one of them")
    if options.out is not None:
        report_writer(options.out)
        check_place("--out", options.out)
    standard_output("open it: the detectors are printed there")
    layer = options.layer
    if options.detector is not None:
        one = _parsed(options.detector)
        if layer not in (None, one.layer):
            raise UserError(f"--detector {one} is of layer {one.layer}, not of --layer {layer}")
        layer = one.layer
    predictor = Predictor.load(options.model)
    config = check_dcnn(predictor)
    if layer is not None and layer > config.depth:
        option = "--layer" if options.detector is None else f"--detector {options.detector}: layer"
        raise UserError(f"{option} {layer} must be from 1 to {config.depth}")
    if options.detector is not None:
        _check_place(one, config)
    if options.like is not None and not predictor.artifact.encoder.tokenizer(options.like):
        raise UserError("--like has no words, so no detector can react; give at least one")
    if options.find is not None:
        known_words(predictor, options.find)
    if options.of_class is not None:
        class_number(predictor, options.of_class)
    return predictor, None if layer is None else [layer]


def _check_place(one: Detector, config: DCNNConfig) -> None:
    maps = config.maps[one.layer - 1]
    rows = config.dim if one.layer == 1 else config.rows(one.layer)  # before folding, and after it
    if one.map >= maps or one.row >= rows:
        raise UserError(
            f"--detector {one}: there is no detector {one}; those of layer {one.layer} are "
            f"{one.layer}:0:0 to {one.layer}:{maps - 1}:{rows - 1}"
        )


def _parsed(text: str) -> Detector:
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(
            f"--detector {text!r} must be three numbers, LAYER:MAP:ROW, for instance 1:0:16"
        )
    return Detector(*map(int, parts))


def _choose(index: DetectorIndex, options: DetectorsOptions) -> list[SelectedDetector]:
    """The detectors asked for, best first."""
    if options.detector is not None:
        return [SelectedDetector(_parsed(options.detector))]
    if options.find is not None:
        return [SelectedDetector(detector) for detector in index.find(options.find)]
    if options.of_class is not None:
        label = options.of_class
        return [
            SelectedDetector(one.detector, "", {"class": label, "amount": one.amount})
            for one in index.for_class(label)
        ]
    if options.like is not None:
        return [
            SelectedDetector(
                reaction.detector,
                f"strength {reaction.strength:.2f} on: {reaction.detection}",
                {"strength": reaction.strength, "on": str(reaction.detection)},
            )
            for reaction in index.for_text(options.like)
        ]
    return [SelectedDetector(detector) for detector in index.by_distinctiveness()]


def print_detectors(
    console: Console, index: DetectorIndex, chosen: Sequence[SelectedDetector]
) -> None:
    """A table with a section a detector."""
    if not chosen:
        return
    table = Table("detector", "value", "count", "n-gram", box=box.SIMPLE)
    table.columns[0].no_wrap = True
    for column in table.columns[1:3]:
        column.justify = "right"
    for one in chosen:
        title = Text(printable(index.name(one.detector)), style="bold")
        table.add_row(Text(str(one.detector), style="bold"), "", "", title)
        for note in (one.note, class_contributions(index, one.detector)):
            if note:
                table.add_row("", "", "", Text(printable(note), style="dim"))
        for found in index.top(one.detector):
            table.add_row("", f"{found.value:+.3f}", f"{found.count:,}", _ngram(found))
        table.add_section()
    console.print(table)


def _ngram(found: Detection) -> Text:
    """The words, those that bring most in bold."""
    text = Text()
    for part, strong in found.parts():
        text.append(" " if text else "").append(
            printable(part), style="bold cyan" if strong else ""
        )
    return text


def _rest(index: DetectorIndex, options: DetectorsOptions, found: int) -> str:
    """What was looked at, what is shown, and how to see the others."""
    if not found:
        return (
            f"{corpus_summary(index)}\nNo detector's strongest n-grams hold clearly more of "
            f"{printable(options.find)!r} than the corpus does."
        )
    if options.detector is not None:
        return corpus_summary(index)
    if options.find is not None:
        order = f"how much more of {printable(options.find)!r} they hold than the corpus does"
    elif options.of_class is not None:
        order = f"their contribution to {printable(options.of_class)}"
    elif options.like is not None:
        order = "how strongly they fire on the text"
    else:
        order = f"how much their {index.unit}s stand out against the corpus"
    shown = min(found, options.limit or FEW)
    line = f"{corpus_summary(index)}\nShown: {shown} of {found}, ordered by {order}."
    if shown < found:
        line += (
            f"\nMore with --limit {found}, or all in a file with --out detectors.html; others with "
            "--find WORD, --class C, --like TEXT or --detector LAYER:MAP:ROW."
        )
    return line


@contextmanager
def _progress() -> Iterator[Report | None]:
    """A line on stderr while the corpus is read; nothing where that is no terminal."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("reading the corpus: {task.completed:,.0f} texts"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda read: bar.update(task, completed=read)
