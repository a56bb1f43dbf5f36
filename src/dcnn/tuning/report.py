"""The report of a search: a page with Optuna's charts, all trials as CSV, the best settings.

Charts are those of ``optuna.visualization.matplotlib``, and importances Optuna's fANOVA; accuracy
against folder size is our own.
"""

import csv
import html
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import optuna
from optuna import Study
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import TrialState

from dcnn.config import to_toml
from dcnn.errors import UserError, needs_extra
from dcnn.files import show_size, write_atomically
from dcnn.plots import GREEN, GREY, RED, draw_svg
from dcnn.tuning.search import Search, Trained, TrialRecord, finished, ranked_trials

REPORT, TRIALS, BEST = "report.html", "trials.csv", "best.toml"
MIN_TRIALS_FOR_IMPORTANCE = 6  # complete ones; with fewer, importance is chance
_SHOWN = 20
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_COLUMNS = ("trial", "outcome", "dev_accuracy", "dev_loss", "epochs_done", "seconds", "bytes")


@dataclass(frozen=True)
class SearchSummary:
    """What the report says about the search as a whole."""

    data: str  # the training file's name
    train: int  # examples
    dev: int
    dev_source: str  # where the dev examples come from
    max_size: int | None  # bytes of the folder
    command: str  # that trains the same model again


def parse_size(text: str) -> int:
    """Bytes of ``2MB``, ``500 kB``, ``1.5MiB`` or a plain number."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Z]*)", text.strip().upper())
    if match is None or match[2] not in _UNITS or not (size := float(match[1]) * _UNITS[match[2]]):
        raise UserError(f"--max-size {text!r} must be a size above 0, such as 2MB or 500KB")
    return int(size)


def write_report(folder: Path, search: Search, summary: SearchSummary) -> None:
    """Write the three files into ``folder``, each atomically."""
    ranked = ranked_trials(search.records)
    best = ranked[0][0]
    settings = f"# Trial {best.number} of `dcnn tune`: {summary.command}\n{to_toml(best.config)}"
    contents = {
        TRIALS: trials_csv(search.records),
        BEST: settings,
        REPORT: render_report(search, ranked, summary),
    }
    for name, text in contents.items():
        with write_atomically(folder / name) as stream:
            stream.write(text.encode())


def trials_csv(records: Sequence[TrialRecord]) -> str:
    """A row per trial: its outcome, then every setting that differs between trials."""
    settings = [record.config.to_flat() for record in records]
    changing = [name for name in settings[0] if len({repr(one.get(name)) for one in settings}) > 1]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*_COLUMNS, *changing])
    for record, setting in zip(records, settings, strict=True):
        one = record.trained
        trained = (one.dev_accuracy, one.dev_loss, one.epochs) if one else ("", "", "")
        cells = [record.number, record.outcome, *trained, f"{record.seconds:.2f}"]
        writer.writerow(
            [*cells, one.size if one else "", *(setting.get(name, "") for name in changing)]
        )
    return stream.getvalue()


def render_report(
    search: Search, ranked: list[tuple[TrialRecord, Trained]], summary: SearchSummary
) -> str:
    """The page, self-contained."""
    # Trials that were cut off are left out, and the others numbered as everywhere else.
    shown = optuna.create_study(direction="maximize")
    shown.add_trials(finished(search.study))
    records, (best, trained) = search.records, ranked[0]
    importance = f"<p>It takes {MIN_TRIALS_FOR_IMPORTANCE} complete trials that differ.</p>"
    complete = shown.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) >= MIN_TRIALS_FOR_IMPORTANCE and len({one.value for one in complete}) > 1:
        evaluator = FanovaImportanceEvaluator(seed=0)
        importance = _optuna_chart(
            "plot_param_importances", shown, evaluator=evaluator, target_name="dev accuracy"
        )
    changes = "<p>Nothing: no trial was better than the start.</p>"
    if best.number:
        before, after = records[0].config.to_flat(), best.config.to_flat()
        changed = [name for name, value in after.items() if before.get(name) != value]
        rows = [(name, str(before.get(name)), str(after[name])) for name in changed]
        changes = _table(("setting", "start", "best"), rows)
    start, outcomes = records[0].trained, Counter(record.outcome for record in records)
    accuracy = trained.dev_accuracy
    texts = {
        "data": summary.data,
        "trials": len(records),
        "best": best.number,
        "accuracy": f"{100 * accuracy:.2f}",
        "start": f"the start has {100 * start.dev_accuracy:.2f} %"
        if start
        else "the start diverged",
        "size": show_size(trained.size),
        "train": f"{summary.train:,}",
        "dev": f"{summary.dev:,}",
        "dev_source": summary.dev_source,
        "outcomes": ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()),
        "minutes": f"{search.seconds / 60:.1f}",
        "seed": best.config.training.seed,
        "error": f"{100 * math.sqrt(accuracy * (1 - accuracy) / summary.dev):.1f}",
        "command": summary.command,
        "shown": _SHOWN,
        "csv": TRIALS,
    }
    elements = {
        "changes": changes,
        "history": _optuna_chart("plot_optimization_history", shown, target_name="dev accuracy"),
        "curves": _optuna_chart("plot_intermediate_values", shown),
        "importance": importance,
        "sizes": size_chart(records, best, summary.max_size),
        "table": _trial_table(ranked[:_SHOWN]),
    }
    page = Template(Path(__file__).with_name(REPORT).read_text(encoding="utf-8"))
    escaped = {name: html.escape(str(text)) for name, text in texts.items()}
    return page.substitute(escaped | elements)


def _trial_table(ranked: Sequence[tuple[TrialRecord, Trained]]) -> str:
    names = list(dict.fromkeys(name for record, _ in ranked for name in record.parameters))
    header = ("trial", "dev, %", "dev loss", "epochs done", "seconds", "size", *names)
    rows = [
        (
            *(str(record.number), f"{100 * one.dev_accuracy:.2f}", f"{one.dev_loss:.4f}"),
            *(str(one.epochs), f"{record.seconds:.1f}", show_size(one.size)),
            *(_shortened(record.parameters.get(name)) for name in names),
        )
        for record, one in ranked
    ]
    return f'<div class="wide">{_table(header, rows, numbers=True)}</div>'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> str:
    """An HTML table; of numbers, the first row is the best."""
    lines = ["<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in header) + "</tr>"]
    for place, row in enumerate(rows):
        style = ' class="best"' if numbers and place == 0 else ""
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr{style}>{cells}</tr>")
    kind = ' class="numbers"' if numbers else ""
    return f"<table{kind}>" + "\n".join(lines) + "</table>"


def _shortened(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _optuna_chart(name: str, study: Study, **options: Any) -> str:
    """A chart of ``optuna.visualization.matplotlib`` as SVG."""
    with needs_extra("A chart", "tune"):
        import matplotlib
        from matplotlib import pyplot
        from optuna.visualization import matplotlib as charts
    # Optuna sets a style of its own; text stays text, and the same study gives the same file.
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental; a range without width
        axes = getattr(charts, name)(study, **options)
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dcnn"})
        axes.set_title("")
        if name == "plot_intermediate_values":  # its legend has a line per trial
            axes.set(xlabel="evaluation of the dev set", ylabel="best dev accuracy so far")
            if (legend := axes.get_legend()) is not None:
                legend.remove()
        stream = io.StringIO()
        axes.figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
        pyplot.close(axes.figure)
    text = stream.getvalue()
    return text[text.index("<svg") :]  # without the XML declaration, so that a page can hold it


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
            size, accuracy = record.trained.size / 1e6, 100 * record.trained.dev_accuracy
            axes.scatter(size, accuracy, zorder=2, **style)
        if max_size is not None:
            axes.axvline(max_size / 1e6, color=GREY, linestyle="--", linewidth=1, label="limit")
        axes.margins(y=0.12)
        axes.set_xlim(0, None)
        axes.set(xlabel="model folder, MB", ylabel="dev accuracy, %")
        axes.legend(fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))

    return draw_svg(draw)
