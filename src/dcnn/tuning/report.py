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
from typing import Any

import optuna
from optuna import Study
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import TrialState

from dcnn.config import to_toml
from dcnn.errors import MissingExtraError, UserError
from dcnn.files import write_atomically
from dcnn.plots import GREEN, GREY, RED, draw_svg
from dcnn.tuning.search import TrialRecord, finished, ranked_trials

REPORT, TRIALS, BEST = "report.html", "trials.csv", "best.toml"
MIN_TRIALS_FOR_IMPORTANCE = 6  # complete ones; with fewer, importance is chance
_SHOWN = 20
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_COLUMNS = ("trial", "outcome", "dev_accuracy", "dev_loss", "epochs_done", "seconds", "bytes")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2430; background: #fff }
h1, h2 { line-height: 1.2 } table { border-collapse: collapse; font-size: 13px }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #e3e6ea }
table.numbers td { text-align: right; white-space: nowrap } svg { max-width: 100%; height: auto }
pre { overflow-x: auto }
tr.best { font-weight: 600 } .wide { overflow-x: auto }
"""


@dataclass(frozen=True)
class SearchSummary:
    """What the report says about the search as a whole.

    Attributes:
        data: the training file's name.
        train: training examples.
        dev: dev examples.
        dev_source: where they come from.
        seed: of the search.
        seconds: time spent, over all resumptions.
        max_size: the size limit of the folder, in bytes.
        command: that trains the same model again.
    """

    data: str
    train: int
    dev: int
    dev_source: str
    seed: int
    seconds: float
    max_size: int | None
    command: str


def parse_size(text: str) -> int:
    """Bytes of ``2MB``, ``500 kB``, ``1.5MiB`` or a plain number."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Z]*)", text.strip().upper())
    if match is None or match[2] not in _UNITS or not (size := float(match[1]) * _UNITS[match[2]]):
        raise UserError(f"--max-size {text!r} must be a size above 0, such as 2MB or 500KB")
    return int(size)


def show_size(size: float) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"


def write_report(
    folder: Path,
    study: Study,
    records: Sequence[TrialRecord],
    best: TrialRecord,
    summary: SearchSummary,
) -> None:
    """Write the three files into ``folder``, each atomically."""
    settings = f"# Trial {best.number} of `dcnn tune`: {summary.command}\n{to_toml(best.config)}"
    contents = {
        TRIALS: trials_csv(records),
        BEST: settings,
        REPORT: render_report(study, records, best, summary),
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


def _importance_is_known(study: Study) -> bool:
    """Whether enough trials are complete, and not all of them equally good."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return len(complete) >= MIN_TRIALS_FOR_IMPORTANCE and len({one.value for one in complete}) > 1


def render_report(
    study: Study, records: Sequence[TrialRecord], best: TrialRecord, summary: SearchSummary
) -> str:
    """The page, self-contained."""
    # Trials that were cut off are left out, and the others numbered as everywhere else.
    shown = optuna.create_study(direction="maximize")
    shown.add_trials(finished(study))
    importance = f"<p>It takes {MIN_TRIALS_FOR_IMPORTANCE} complete trials that differ.</p>"
    if _importance_is_known(shown):
        evaluator = FanovaImportanceEvaluator(seed=0)
        importance = _optuna_chart(
            "plot_param_importances", shown, evaluator=evaluator, target_name="dev accuracy"
        )
    before, after = records[0].config.to_flat(), best.config.to_flat()
    changes = [
        (name, str(before.get(name)), str(value))
        for name, value in after.items()
        if before.get(name) != value
    ]
    sections = [
        f"<h1>{html.escape(summary.data)}: {len(records)} trials</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in _summary(records, best, summary)),
        "<h2>What changed</h2>",
        _table(("setting", "start", "best"), changes)
        if best.number
        else "<p>Nothing: no trial was better than the start.</p>",
        f"<p>The same model again:</p><pre>{html.escape(summary.command)}</pre>",
        "<h2>Trials in order</h2>",
        _optuna_chart("plot_optimization_history", shown, target_name="dev accuracy"),
        "<h2>Learning curves</h2>",
        _optuna_chart("plot_intermediate_values", shown),
        "<h2>Importance of the settings</h2>",
        importance,
        "<h2>Accuracy against size</h2>",
        size_chart(records, best, summary.max_size),
        f"<h2>The best {_SHOWN} trials</h2>",
        _trial_table(records),
        f"<p>All of them are in {TRIALS}.</p>",
    ]
    title = f"dcnn tune: {html.escape(summary.data)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(sections)
        + "</body></html>\n"
    )


def _summary(
    records: Sequence[TrialRecord], best: TrialRecord, summary: SearchSummary
) -> list[str]:
    counts = Counter(record.outcome for record in records)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    start = records[0].trained
    before = f"the start has {100 * start.dev_accuracy:.2f} %" if start else "the start diverged"
    assert best.trained is not None  # noqa: S101
    accuracy = best.trained.dev_accuracy
    error = math.sqrt(accuracy * (1 - accuracy) / summary.dev)
    return [
        f"Best is trial {best.number}: dev accuracy {100 * accuracy:.2f} %; {before}. "
        f"Its folder takes {show_size(best.trained.size)}.",
        f"{summary.train:,} training and {summary.dev:,} dev examples ({summary.dev_source}); "
        f"{outcomes}; {summary.seconds / 60:.1f} minutes; seed {summary.seed}.",
        f"The best of many is partly luck: on {summary.dev:,} examples the standard error of an "
        f"accuracy is {100 * error:.1f} points, and every trial was evaluated on them. Evaluate "
        "the model on examples that the search has not seen: dcnn evaluate MODEL test.csv.",
    ]


def _trial_table(records: Sequence[TrialRecord]) -> str:
    ranked = ranked_trials(records)[:_SHOWN]
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
    """A chart of ``optuna.visualization.matplotlib`` as SVG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib import pyplot
        from optuna.visualization import matplotlib as charts
    except ImportError:
        raise MissingExtraError("A chart", "tune") from None
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
