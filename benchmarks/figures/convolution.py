"""Fig. 2: narrow and wide convolution of a sequence with a filter of width five.

The numbers in the circles are computed: below the sequence, above each its convolution.
"""

from collections.abc import Sequence

import numpy as np

from dcnn.inspection.picture import FOR, GREY, INK
from dcnn.ops import reference
from figures.canvas import WHITE, Canvas, ink_on, shade

SEQUENCE = (2, 1, 0, 3, -1, 2, 1)
FILTER = (1, 0, -1, 2, 1)

STEP = 46.0
RADIUS = 16.0
UPPER, LOWER = 92.0, 250.0
LEFT = 40.0
GAP = 60.0  # between the two halves


def draw_convolutions(sequence: Sequence[int] = SEQUENCE, weights: Sequence[int] = FILTER) -> str:
    """The figure as SVG."""
    s, m = len(sequence), len(weights)
    row = np.array(sequence, np.float64)[None, None, None]  # (1, 1, 1, s)
    filters = np.array(weights, np.float64)[None, None, None]
    narrow = reference.narrow_convolution(row, filters)[0, 0, 0]
    wide = reference.wide_convolution(row, filters)[0, 0, 0]
    outside = m - 1  # columns of zeros on either side
    left_width = s * STEP
    right = LEFT + left_width + GAP
    width = right + (s + 2 * outside) * STEP + LEFT - STEP / 2
    canvas = Canvas(width, 330, "Narrow and wide convolution")
    largest = float(np.abs(wide).max())
    first = [LEFT + STEP / 2 + i * STEP for i in range(s)]
    _half(canvas, first, 0, sequence, narrow, largest, m)
    _title(canvas, first, f"narrow: {len(narrow)} = s - m + 1")
    padded = [right + STEP / 2 + i * STEP for i in range(s + 2 * outside)]
    _half(canvas, padded, outside, sequence, wide, largest, m)
    _title(canvas, padded, f"wide: {len(wide)} = s + m - 1")
    shown = ", ".join(map(_plain, weights))
    return canvas.svg(
        f"The sequence s of {s} values (below) and the filter ({shown}): each "
        f"value c (above) is its dot product with the {m} values of s that end below it. In the "
        "wide convolution what lies outside the sequence is zero (dashed). The narrow one is its "
        "middle (ringed in blue)."
    )


def _half(
    canvas: Canvas,
    places: Sequence[float],
    outside: int,
    sequence: Sequence[int],
    result: Sequence[float],
    largest: float,
    m: int,
) -> None:
    """``places`` are x positions of the sequence with ``outside`` zeros on either side."""
    s = len(sequence)
    first_end = outside or m - 1  # place of the first m-gram's last value
    for number in range(len(result)):
        end = first_end + number
        for i in range(m):
            below = end - i
            zero = not outside <= below < outside + s
            canvas.line(
                (places[below], LOWER - RADIUS),
                (places[end], UPPER + RADIUS),
                "#c3cbd4" if zero else GREY,
                0.8 if zero else 1.2,
                dash="3 4" if zero else "",
            )
    for place, x in enumerate(places):
        inside = outside <= place < outside + s
        value = sequence[place - outside] if inside else 0
        _value(canvas, (x, LOWER), value, max(map(abs, sequence)), inside)
        if inside:
            canvas.text((x, LOWER + 38), f"s{_low(place - outside + 1)}", 14, GREY)
    narrow = range(m - 1, s) if outside else range(0)
    for number, total in enumerate(result):
        x = places[first_end + number]
        _value(canvas, (x, UPPER), total, largest, True, number in narrow)
        label = number + 1 if outside else number + m
        canvas.text((x, UPPER - 28), f"c{_low(label)}", 14, GREY)


def _value(
    canvas: Canvas,
    at: tuple[float, float],
    value: float,
    largest: float,
    real: bool,
    marked: bool = False,
) -> None:
    if not real:
        canvas.disc(at, RADIUS - 3, WHITE, "#c3cbd4")
        canvas.text((at[0], at[1] + 4.5), "0", 12, "#9aa5b1")
        return
    if marked:
        canvas.disc(at, RADIUS + 4, WHITE, FOR, 2.0)
    canvas.disc(at, RADIUS, shade(value, largest), INK)
    canvas.text((at[0], at[1] + 5), _plain(value), 14, ink_on(value, largest), weight=600)


def _plain(value: float) -> str:
    return f"{value:g}".replace("-", "\u2212")


def _title(canvas: Canvas, places: Sequence[float], text: str) -> None:
    canvas.text(((places[0] + places[-1]) / 2, 34), text, 17, weight=600)


def _low(number: int) -> str:
    """``number`` in lowered digits."""
    return "".join(chr(0x2080 + int(digit)) for digit in str(number))
