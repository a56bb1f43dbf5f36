"""The report of a search: the gain over the start, charts, all trials as CSV, the best settings.

The best of many trials looks better than it is, so the gain is tested with the choice in mind
(White's reality check, 2000, with Hansen's correction, 2005): had no trial a better accuracy than
the start on all texts of this kind, how often would the best of them gain as much on a sample of
this size?

Charts are those of ``optuna.visualization.matplotlib``, and importances Optuna's fANOVA; accuracy
against folder size is our own.
"""

import csv
import html
import io
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna import Study
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import TrialState

from dcnn.config import to_toml
from dcnn.errors import needs_extra
from dcnn.files import show_size, write_atomically
from dcnn.plots import GREEN, GREY, RED, draw_svg
from dcnn.tuning.search import AHEAD, Search, Trained, TrialRecord, finished, ranked_trials

REPORT, TRIALS, BEST = "report.html", "trials.csv", "best.toml"
MIN_TRIALS_FOR_IMPORTANCE = 6  # complete ones; with fewer, importance is chance
_SHOWN = 20
SIGNIFICANCE = 0.05
_BOOTSTRAP_SAMPLES, _BOOTSTRAP_BLOCK = 4_000, 200  # samples; at a time, to bound the memory
_BOOTSTRAP_SEED = 20140408  # fixed, so that a report is the same whenever it is written


@dataclass(frozen=True)
class SearchSummary:
    """What the report says about the search as a whole."""

    data: str  # the training file's name
    train: int  # examples
    dev: int
    dev_source: str  # where the dev examples come from
    max_size: int | None  # bytes of the folder
    command: str  # that trains the same model again
    start: str  # the settings of the first trial, in words
    gain: "Gain | None" = None  # of the best trial; none where the start did not finish


@dataclass(frozen=True)
class Gain:
    """The best trial beside the start, on the same examples."""

    best: int  # its number
    points: float  # difference of the accuracies
    gained: int  # examples that the best labels correctly and the start does not
    lost: int  # the other way round
    trials: int  # complete ones, the start among them
    p: float  # of a gain as large by chance, the choice among the trials considered

    @property
    def is_significant(self) -> bool:
        """Whether the gain is beyond noise."""
        return self.p < SIGNIFICANCE

    def describe(self, start: str) -> str:
        """In a sentence or two; ``start`` are the settings of the first trial, in words."""
        if self.best == 0:
            return f"No trial is better than {start}, so they are kept."
        counted = (
            f"{100 * self.points:+.2f} points over {start} ({self.gained} examples gained, "
            f"{self.lost} lost"
        )
        if self.is_significant:
            return f"The gain of {counted}; p = {self.p:.2g}) is beyond noise."
        return (
            f"The gain of {counted}; p = {self.p:.2g}) is within noise: by chance alone the best "
            f"of {self.trials} trials may gain as much. More examples will help more than more "
            "trials."
        )


def gain_over_start(records: Sequence[TrialRecord], examples: int) -> Gain | None:
    """The gain of the best trial; none where the start, trial 0, is not complete."""
    complete = {record.number: record.trained for record in records if record.trained is not None}
    if 0 not in complete:
        return None
    best = ranked_trials(records)[0][0].number
    correct = {number: _correct(one, examples) for number, one in complete.items()}
    start = correct.pop(0)
    gained, lost = correct.get(best, start) & ~start, start & ~correct.get(best, start)
    return Gain(
        best=best,
        points=complete[best].accuracy - complete[0].accuracy,
        gained=int(gained.sum()),
        lost=int(lost.sum()),
        trials=len(complete),
        p=chance_of_best(start, np.array([*correct.values()])) if best else 1.0,
    )


def _correct(trained: Trained, examples: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(trained.correct), np.uint8)
    return np.unpackbits(packed, count=examples).astype(np.bool_)


def chance_of_best(start: NDArray[np.bool_], trials: NDArray[np.bool_]) -> float:
    """P of the largest gain of ``trials`` (trials, examples) over ``start`` (examples,).

    Examples are drawn with replacement; every trial's gain is then taken relative to its own mean,
    as if none were better than the start, and the largest is compared with the observed one. A
    trial that is clearly worse stays so: it cannot be the best by chance.
    """
    differences = trials.astype(np.int64) - start  # (trials, examples)
    kinds, counts = np.unique(differences, axis=1, return_counts=True)
    means = differences.mean(axis=1)
    observed, examples = means.max(), len(start)
    errors = differences.std(axis=1) / math.sqrt(examples)
    is_worse = means < -errors * math.sqrt(2 * math.log(math.log(max(examples, 3))))
    centres = np.where(is_worse, 0.0, means)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    as_large = 0
    for _ in range(0, _BOOTSTRAP_SAMPLES, _BOOTSTRAP_BLOCK):
        drawn = generator.multinomial(examples, counts / examples, size=_BOOTSTRAP_BLOCK)
        largest = (drawn @ kinds.T / examples - centres).max(axis=1)
        as_large += int((largest >= observed - 1e-12).sum())
    return (1 + as_large) / (1 + _BOOTSTRAP_SAMPLES)


def write_report(
    folder: Path, search: Search, summary: SearchSummary, chosen: TrialRecord | None = None
) -> None:
    """Write the three files into ``folder``, each atomically.

    ``chosen`` is the trial whose settings are taken, by default the best.
    """
    ranked = ranked_trials(search.records)
    ranked.sort(key=lambda one: one[0] is not chosen)  # which is stable
    best = ranked[0][0]
    settings = f"# Trial {best.number} of `dcnn tune`: {summary.command}\n{to_toml(best.config)}"
    contents = {
        TRIALS: trials_csv(search.records, "dev" if search.folds == 1 else "cv"),
        BEST: settings,
        REPORT: render_report(search, ranked, summary),
    }
    for name, text in contents.items():
        with write_atomically(folder / name) as stream:
            stream.write(text.encode())


def trials_csv(records: Sequence[TrialRecord], evaluated: str) -> str:
    """A row per trial: its outcome, then every setting that differs between trials."""
    scores = (f"{evaluated}_accuracy", f"{evaluated}_loss")
    settings = [record.config.to_flat() for record in records]
    changing = [name for name in settings[0] if len({repr(one.get(name)) for one in settings}) > 1]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = ("trial", "outcome", *scores, "epochs_done", "seconds", "bytes")
    writer.writerow([*columns, *changing])
    for record, setting in zip(records, settings, strict=True):
        one = record.trained
        trained = (one.accuracy, one.loss, one.epochs) if one else ("", "", "")
        cells = [record.number, record.outcome, *trained, f"{record.seconds:.2f}"]
        writer.writerow(
            [*cells, one.size if one else "", *(setting.get(name, "") for name in changing)]
        )
    return stream.getvalue()


def render_report(
    search: Search, ranked: list[tuple[TrialRecord, Trained]], summary: SearchSummary
) -> str:
    """The page, self-contained; ``ranked`` are the complete trials, the chosen one first."""
    # Trials that were cut off are left out, and the others numbered as everywhere else.
    shown = optuna.create_study(direction="maximize")
    shown.add_trials(finished(search.study))
    records, (best, trained) = search.records, ranked[0]
    importance = f"<p>It takes {MIN_TRIALS_FOR_IMPORTANCE} complete trials that differ.</p>"
    complete = shown.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) >= MIN_TRIALS_FOR_IMPORTANCE and len({one.value for one in complete}) > 1:
        evaluator = FanovaImportanceEvaluator(seed=0)
        importance = _optuna_chart(
            "plot_param_importances", shown, evaluator=evaluator, target_name=search.measure
        )
    changes = "<p>Nothing: no trial was better than the start.</p>"
    if best.number:
        before, after = records[0].config.to_flat(), best.config.to_flat()
        changed = [name for name, value in after.items() if before.get(name) != value]
        rows = [(name, str(before.get(name)), str(after[name])) for name in changed]
        changes = _table(("setting", "start", "best"), rows)
    jobs, alike = search.jobs, f"The trials are the same for every --jobs up to {AHEAD}."
    others = f"With --jobs {jobs}, {jobs} trials are proposed at once; another number gives others."
    start, outcomes = records[0].trained, Counter(record.outcome for record in records)
    texts = {
        "data": summary.data,
        "trials": len(records),
        "best": best.number,
        "measure": search.measure,
        "accuracy": f"{100 * trained.accuracy:.2f}",
        "start": f"{summary.start} have {100 * start.accuracy:.2f} %"
        if start
        else f"{summary.start} diverged",
        "gain": summary.gain.describe(summary.start) if summary.gain else "",
        "size": show_size(trained.size),
        "train": f"{summary.train:,}",
        "dev": f"{summary.dev:,}",
        "dev_source": summary.dev_source,
        "evaluation": _describe_evaluation(summary, search.folds),
        "outcomes": ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()),
        "minutes": f"{search.seconds / 60:.1f}",
        "seed": best.config.training.seed,
        "jobs": alike if jobs <= AHEAD else others,
        "command": summary.command,
        "shown": _SHOWN,
        "csv": TRIALS,
    }
    elements = {
        "changes": changes,
        "history": _optuna_chart("plot_optimization_history", shown, target_name=search.measure),
        "curves": _optuna_chart("plot_intermediate_values", shown),
        "importance": importance,
        "sizes": size_chart(search, best, summary.max_size),
        "table": _trial_table(ranked[:_SHOWN], search.measure),
    }
    page = Template(Path(__file__).with_name(REPORT).read_text(encoding="utf-8"))
    escaped = {name: html.escape(str(text)) for name, text in texts.items()}
    return page.substitute(escaped | elements)


def _describe_evaluation(summary: SearchSummary, folds: int) -> str:
    if folds == 1:
        return f"Every trial was evaluated on the {summary.dev:,} dev examples."
    return (
        f"The {summary.dev:,} dev examples are few, so every trial was evaluated by "
        f"{folds}-fold cross-validation on the {summary.train:,} training examples; dev "
        "decided when each training stopped."
    )


def _trial_table(ranked: Sequence[tuple[TrialRecord, Trained]], measure: str) -> str:
    names = list(dict.fromkeys(name for record, _ in ranked for name in record.parameters))
    header = ("trial", f"{measure}, %", "loss", "epochs done", "seconds", "size", *names)
    rows = [
        (
            *(str(record.number), f"{100 * one.accuracy:.2f}", f"{one.loss:.4f}"),
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
            axes.set(xlabel="evaluation", ylabel="accuracy so far")
            if (legend := axes.get_legend()) is not None:
                legend.remove()
        stream = io.StringIO()
        axes.figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
        pyplot.close(axes.figure)
    text = stream.getvalue()
    return text[text.index("<svg") :]  # without the XML declaration, so that a page can hold it


def size_chart(search: Search, best: TrialRecord, max_size: int | None) -> str:
    """Accuracy against the size of the folder."""

    def draw(axes: Any) -> None:
        for record in search.records:
            if record.trained is None:
                continue
            style: dict[str, Any] = {"color": GREEN, "s": 22}
            if record.number == best.number:
                style = {"color": RED, "s": 130, "marker": "*", "label": "best"}
            elif record.number == 0:
                style = {"color": "black", "s": 30, "label": "start"}
            size, accuracy = record.trained.size / 1e6, 100 * record.trained.accuracy
            axes.scatter(size, accuracy, zorder=2, **style)
        if max_size is not None:
            axes.axvline(max_size / 1e6, color=GREY, linestyle="--", linewidth=1, label="limit")
        axes.margins(y=0.12)
        axes.set_xlim(0, None)
        axes.set(xlabel="model folder, MB", ylabel=f"{search.measure}, %")
        axes.legend(fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))

    return draw_svg(draw)
