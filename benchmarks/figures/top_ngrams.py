"""Fig. 4: the strongest n-grams of some first-layer detectors, word below word."""

from collections.abc import Sequence
from dataclasses import dataclass

from dcnn.inspection.detector_ranking import Detection, Detector
from dcnn.inspection.detectors import DetectorIndex
from dcnn.inspection.explanation import class_number
from dcnn.inspection.picture import FOR, GREY, INK, LINE, shortened
from figures.canvas import Canvas

FONT = 15.0
ROW = 25.0
HEAD = 62.0
GAP = 34.0
MARGIN = 28.0
NUMBER = 58.0  # room for a value
LETTER = 0.6  # mean width of a letter, in font sizes: words of wide letters have to fit
SPACE = 12.0  # between two columns
BOLD = 0.66  # mean width of a bold letter, in font sizes


@dataclass(frozen=True)
class Block:
    """One detector of the figure, and its title."""

    title: str
    detector: Detector


def ngrams_with(index: DetectorIndex, detector: Detector, word: str) -> tuple[int, int]:
    """Number of a detector's strongest n-grams where a word contributes most, and where it is."""
    found = index.top(detector)
    marked = sum((word, True) in detection.parts() for detection in found)
    return marked, sum(word in detection.words for detection in found)


def detector_for_word(index: DetectorIndex, word: str) -> Detector | None:
    """The first-layer detector in whose n-grams a word most often contributes most.

    None if there is no detector that has the word in more than half of its n-grams, or only weak
    ones.
    """
    heard = [d for d in index.find(word) if d.layer == 1 and not index.is_weak(d)]
    counts = {detector: ngrams_with(index, detector, word) for detector in heard}
    enough = [detector for detector in heard if 2 * counts[detector][1] > index.shown]
    return max(enough, key=counts.__getitem__, default=None)  # among equals the clearest


def detector_for_class(index: DetectorIndex, label: object) -> Detector:
    """The first-layer detector that pushes most towards a class, with every one of its n-grams.

    If there is none of which all n-grams do, the one that pushes most in the mean.
    """
    number = class_number(index.predictor, str(label))
    ordered = [p.detector for p in index.for_class(str(label)) if p.detector.layer == 1]
    for detector in ordered:
        if all(carried[number] > 0 for carried in index.ngram_contributions(detector)):
            return detector
    return ordered[0]


def draw_top_ngrams(index: DetectorIndex, blocks: Sequence[Block], caption: str) -> str:
    """The figure as SVG, two blocks per row."""
    tables = [_columns(index.top(block.detector)) for block in blocks]
    width = [
        max((NUMBER + sum(widths) for widths in tables[side::2]), default=0.0) for side in (0, 1)
    ]
    height = HEAD + index.shown * ROW
    rows = (len(blocks) + 1) // 2
    canvas = Canvas(
        2 * MARGIN + sum(width) + GAP,
        MARGIN + rows * (height + GAP) - GAP / 2,
        "Top n-grams of feature detectors",
    )
    for number, (block, widths) in enumerate(zip(blocks, tables, strict=True)):
        line, side = divmod(number, 2)
        corner = MARGIN + side * (width[0] + GAP), MARGIN + line * (height + GAP)
        _block(canvas, index, block, corner, widths, width[side])
    return canvas.svg(caption)


def _columns(found: Sequence[Detection]) -> list[float]:
    """The width of the column of each place."""
    places = max(len(detection.words) for detection in found)
    return [
        max(_width(d.words[place], place in d.strongest) for d in found if place < len(d.words))
        for place in range(places)
    ]


def _width(word: str, strong: bool) -> float:
    """Of a word in its column, the space after it included; bold letters are wider."""
    return len(shortened(word)) * (BOLD if strong else LETTER) * FONT + SPACE


def _block(
    canvas: Canvas,
    index: DetectorIndex,
    block: Block,
    corner: tuple[float, float],
    widths: Sequence[float],
    width: float,
) -> None:
    x, y = corner
    canvas.text((x, y + 6), block.title, 17, INK, "start", 600)
    about = f"map {block.detector.map}, row {block.detector.row}: {index.name(block.detector)}"
    canvas.text((x, y + 27), about, 13, GREY, "start")
    canvas.line((x, y + 37), (x + width, y + 37), LINE, 2)
    for number, found in enumerate(index.top(block.detector)):
        base = y + HEAD + number * ROW
        canvas.text((x + NUMBER - 16, base), f"{found.value:.2f}", 12.5, GREY, "end")
        left = x + NUMBER
        for place, (word, column) in enumerate(zip(found.words, widths, strict=False)):
            strong = place in found.strongest
            colour, weight = (FOR, 700) if strong else (INK, 400)
            canvas.text((left, base), shortened(word), FONT, colour, "start", weight)
            left += column
