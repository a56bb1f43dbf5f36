"""The charts of a report: how the search went, what mattered, what size buys."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dcnn.charts import GREEN, GREY, RED, draw_svg
from dcnn.tuning.trials import PRUNED, TrialRecord


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
        axes.legend(fontsize=8, frameon=False, loc="lower right")

    return draw_svg(draw)


def curves_chart(records: Sequence[TrialRecord], best: TrialRecord) -> str:
    """The best dev accuracy so far of each trial, look by look."""

    def draw(axes: Any) -> None:
        for record in records:
            looks = range(1, len(record.curve) + 1)
            values = [100 * value for value in record.curve]
            if record.number == best.number:
                axes.plot(looks, values, color=RED, linewidth=2, zorder=3, label="best trial")
            elif record.number == 0:
                axes.plot(looks, values, color="black", linewidth=1.5, label="start")
            elif record.outcome == PRUNED:
                axes.plot(looks, values, color=GREY, alpha=0.4, linewidth=0.8)
            else:
                axes.plot(looks, values, color=GREEN, alpha=0.5, linewidth=0.8)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="look at the dev set", ylabel="best dev accuracy so far, %")
        axes.legend(fontsize=8, frameon=False, loc="lower right")

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
        trained = [(r.number, r.trained) for r in records if r.trained]
        for number, one in trained:
            style = {"color": RED, "marker": "*", "s": 130} if number == best.number else {}
            style = style or {"color": "black" if number == 0 else GREEN, "s": 22}
            axes.scatter(one.size / 1e6, 100 * one.dev_accuracy, zorder=2, **style)
        if max_size is not None:
            axes.axvline(max_size / 1e6, color=GREY, linestyle="--", linewidth=1)
        axes.set_xlim(0, None)
        axes.set(xlabel="model folder, MB", ylabel="dev accuracy, %")

    return draw_svg(draw)
