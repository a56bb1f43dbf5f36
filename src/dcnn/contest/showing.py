"""The ranking as a table, in Markdown, and as a plot."""

from collections.abc import Sequence
from typing import Any

from dcnn.charts import GREEN, RED, draw_svg
from dcnn.contest.standing import Place

COLUMNS = ("model", "accuracy", "behind best", "F1", "train s", "MB", "us/text", "texts/s")
OURS = ("dcnn", "max-tdnn", "nbow")
TIED = "="


def cells(place: Place) -> tuple[str, ...]:
    """A row of the table."""
    score, accuracy = place.score, place.accuracy
    spread = f" ± {100 * accuracy.deviation:.2f}" if accuracy.deviation is not None else ""
    return (
        score.name,
        f"{100 * accuracy.mean:.2f}{spread}",
        _behind(place),
        f"{100 * score.macro_f1:.2f}",
        f"{score.train_seconds:.1f}",
        f"{score.size / 1e6:.{2 if score.size < 1e7 else 1}f}",
        f"{1e6 * score.latency.median:,.0f}",
        f"{score.texts_per_second:,.0f}",
    )


def _behind(place: Place) -> str:
    if place.behind is None:
        return ""
    low, high = 100 * place.behind.low, 100 * place.behind.high
    return f"{low:.1f} to {high:.1f}{f' {TIED}' if place.is_tied else ''}"


def remarks(places: Sequence[Place], examples: int, seeds: int) -> list[str]:
    """What the table does not say by itself."""
    tied = [place.score.name for place in places if place.is_tied]
    runs = f"the mean of {seeds} seeds where there are any" if seeds > 1 else "one seed each"
    lines = [
        f"Accuracy and macro F1 on {examples:,} test examples, %, {runs}; behind the best: 95 % "
        "bootstrap interval of the difference, in points."
    ]
    if tied:
        lines.append(
            f"{TIED} the test set does not tell {', '.join(tied)} from {places[0].score.name}."
        )
    return lines


def markdown(places: Sequence[Place], lines: Sequence[str]) -> str:
    """The table as a document."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, places)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n\n".join([table, *lines]) + "\n"


def plot(places: Sequence[Place]) -> str:
    """Accuracy, with its interval, against the time for one text, as SVG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> None:
        for place in places:
            time, mean = 1e6 * place.score.latency.median, 100 * place.accuracy.mean
            ends = [[mean - 100 * place.interval.low], [100 * place.interval.high - mean]]
            color = GREEN if place.score.name in OURS else RED
            axes.errorbar(time, mean, yerr=ends, fmt="o", color=color, capsize=3, linewidth=1)
            axes.annotate(
                place.score.name, (time, mean), (6, 4), textcoords="offset points", fontsize=9
            )
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set(xlabel="one text, microseconds", ylabel="test accuracy, %")

    return draw_svg(draw, height=4.0)
