"""The charts of a report: how the search went, what mattered, what size buys."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dcnn.charts import GREEN, GREY, RED, draw_svg
from dcnn.tuning.trials import COMPLETE, PRUNED, TrialRecord


def history_chart(records: Sequence[TrialRecord], best: TrialRecord) -> str:
    """Dev accuracy of every trial in its order, and the best so far."""

    def draw(axes: Any) -> None:
        complete = [(r.number, 100 * r.trained.dev_accuracy) for r in records if r.trained]
        pruned = [(r.number, 100 * r.curve[-1]) for r in records if r.outcome == PRUNED and r.curve]
        if pruned:
            axes.plot(*zip(*pruned, strict=True), "x", color=GREY, label="pruned")
        axes.plot(*zip(*complete, strict=True), "o", color=GREEN, label="complete")
        numbers, values = zip(*complete, strict=True)
        steps = [*accumulate(values, max)]
        axes.step(numbers, steps, where="post", color=GREEN, alpha=0.5, label="best so far")
        assert best.trained is not None  # noqa: S101
        axes.plot(best.number, 100 * best.trained.dev_accuracy, "*", color=RED, markersize=13)
        low = min(values)
        # A trial pruned at the level of chance would press all others together.
        axes.set_ylim(low - max(2.0, 0.5 * (max(values) - low)), None)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="trial", ylabel="dev accuracy, %")
        _legend(axes)

    return draw_svg(draw)


def curves_chart(records: Sequence[TrialRecord], best: TrialRecord) -> str:
    """The best dev accuracy so far of each trial, look by look."""

    def draw(axes: Any) -> None:
        labels = {COMPLETE: "complete", PRUNED: "pruned"}
        for record in records:
            looks = range(1, len(record.curve) + 1)
            values = [100 * value for value in record.curve]
            if record.number == best.number:
                axes.plot(looks, values, color=RED, linewidth=2, zorder=3, label="best trial")
            elif record.number == 0:
                axes.plot(looks, values, color="black", linewidth=1.5, label="start")
            else:
                axes.plot(
                    looks,
                    values,
                    "-" if record.trained else ".-",
                    color=GREEN if record.trained else GREY,
                    alpha=0.6,
                    linewidth=0.8,
                    label=labels.pop(record.outcome, None),
                )
        firsts = [100 * record.curve[0] for record in records if record.trained]
        axes.set_ylim(min(firsts) - 2, None)  # pruned ones may begin far below
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="look at the dev set", ylabel="best dev accuracy so far, %")
        _legend(axes)

    return draw_svg(draw)


def importance_chart(importance: dict[str, float]) -> str:
    """What share of the differences between trials each setting explains."""

    def draw(axes: Any) -> None:
        names = sorted(importance, key=importance.__getitem__)
        axes.barh(names, [100 * importance[name] for name in names], color=GREEN, height=0.7)
        axes.set(xlabel="share of the differences between trials, %")
        axes.grid(visible=False, axis="y")

    return draw_svg(draw, height=0.9 + 0.24 * len(importance))


def size_chart(
    records: Sequence[TrialRecord], best: TrialRecord, max_size: int | None = None
) -> str:
    """Dev accuracy against the size of the folder."""

    def draw(axes: Any) -> None:
        for record in records:
            if record.trained is None:
                continue
            style: dict[str, Any] = {"color": GREEN, "s": 22}
            if record.number == best.number:
                style = {"color": RED, "s": 130, "marker": "*", "label": "best"}
            elif record.number == 0:
                style = {"color": "black", "s": 30, "label": "start"}
            axes.scatter(
                record.trained.size / 1e6, 100 * record.trained.dev_accuracy, zorder=2, **style
            )
        if max_size is not None:
            axes.axvline(max_size / 1e6, color=GREY, linestyle="--", linewidth=1, label="limit")
        axes.margins(y=0.12)
        axes.set_xlim(0, None)
        axes.set(xlabel="model folder, MB", ylabel="dev accuracy, %")
        _legend(axes)

    return draw_svg(draw)


def _legend(axes: Any) -> None:
    """Above the axes, where no point can lie under it."""
    axes.legend(
        fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0
    )
