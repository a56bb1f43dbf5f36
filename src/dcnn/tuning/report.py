"""What is left of a search beside the model: a page with charts, all trials, the best settings."""

import html
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optuna import Study
from optuna.exceptions import ExperimentalWarning
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from dcnn.files import write_atomically
from dcnn.recipe import to_toml
from dcnn.tuning.folder_size import show_size
from dcnn.tuning.plots import curves_chart, history_chart, importance_chart, size_chart
from dcnn.tuning.tables import trials_csv
from dcnn.tuning.trials import COMPLETE, TrialRecord

REPORT, TRIALS, BEST = "report.html", "trials.csv", "best.toml"
FEWEST_FOR_IMPORTANCE = 6  # complete trials; below, it is chance
_SHOWN = 20

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2430; background: #fff }
h1, h2 { line-height: 1.2 } table { border-collapse: collapse; font-size: 13px }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #e3e6ea }
td.n { text-align: right; white-space: nowrap } svg { max-width: 100%; height: auto }
pre { overflow-x: auto }
tr.best { font-weight: 600 } .wide { overflow-x: auto }
"""


@dataclass(frozen=True)
class SearchFacts:
    """What the report says of the search as a whole.

    Attributes:
        data: the training file's name.
        train: training examples.
        dev: dev examples.
        dev_source: where they come from.
        seed: of the search.
        seconds: time spent, over all resumptions.
        max_size: the limit of the folder's size, in bytes.
        command: that makes the model again.
    """

    data: str
    train: int
    dev: int
    dev_source: str
    seed: int
    seconds: float
    max_size: int | None
    command: str


def write_report(
    folder: Path,
    study: Study,
    records: Sequence[TrialRecord],
    best: TrialRecord,
    facts: SearchFacts,
) -> None:
    """Write the three files into ``folder``, each whole or not at all."""
    settings = f"# Trial {best.number} of `dcnn tune`: {facts.command}\n{to_toml(best.config)}"
    contents = {
        TRIALS: trials_csv(records),
        BEST: settings,
        REPORT: render_report(records, best, facts, setting_importance(study)),
    }
    for name, text in contents.items():
        with write_atomically(folder / name) as stream:
            stream.write(text.encode())


def setting_importance(study: Study) -> dict[str, float]:
    """The share of the differences in dev accuracy that each setting explains (fANOVA).

    Empty where too few trials are complete, or all are equally good. Only settings that every
    complete trial has can be compared.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < FEWEST_FOR_IMPORTANCE or len({trial.value for trial in complete}) == 1:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        evaluator = FanovaImportanceEvaluator(seed=0)
        return get_param_importances(study, evaluator=evaluator)


def render_report(
    records: Sequence[TrialRecord],
    best: TrialRecord,
    facts: SearchFacts,
    importance: dict[str, float],
) -> str:
    """The page, with nothing outside itself."""
    importances = (
        importance_chart(importance)
        if importance
        else f"<p>It takes {FEWEST_FOR_IMPORTANCE} complete trials that are not all alike.</p>"
    )
    changes = _rows(_changes(records[0], best), ("setting", "start", "best"))
    sections = [
        f"<h1>{html.escape(facts.data)}: {len(records)} trials</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in _summary(records, best, facts)),
        "<h2>What changed</h2>",
        changes if best.number else "<p>Nothing: no trial was better than the start.</p>",
        f"<p>The same model again:</p><pre>{html.escape(facts.command)}</pre>",
        "<h2>Trials in their order</h2>",
        history_chart(records, best),
        "<h2>Learning curves</h2>",
        curves_chart(records, best),
        "<h2>Which settings mattered</h2>",
        importances,
        "<h2>Accuracy against size</h2>",
        size_chart(records, best, facts.max_size),
        f"<h2>The best {_SHOWN} trials</h2>",
        _trial_table(records, best),
        f"<p>All of them are in {TRIALS}.</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>dcnn tune: {html.escape(facts.data)}</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(sections)
        + "</body></html>\n"
    )


def _summary(records: Sequence[TrialRecord], best: TrialRecord, facts: SearchFacts) -> list[str]:
    counts = Counter(record.outcome for record in records)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    start = records[0].trained
    before = f"the start has {100 * start.dev_accuracy:.2f} %" if start else "the start diverged"
    assert best.trained is not None  # noqa: S101
    accuracy = best.trained.dev_accuracy
    error = math.sqrt(accuracy * (1 - accuracy) / facts.dev)
    return [
        f"Best is trial {best.number}: dev accuracy {100 * accuracy:.2f} %; {before}. "
        f"Its folder takes {show_size(best.trained.size)}.",
        f"{facts.train:,} training and {facts.dev:,} dev examples ({facts.dev_source}); "
        f"{outcomes}; {facts.seconds / 60:.1f} minutes; seed {facts.seed}.",
        f"The best of many is in part lucky: on {facts.dev:,} examples an accuracy is uncertain "
        f"by {100 * error:.1f} points (a standard error), and every trial looked at them. Judge "
        "the model on examples that the search has never seen: dcnn evaluate MODEL test.csv.",
    ]


def _changes(start: TrialRecord, best: TrialRecord) -> list[tuple[str, ...]]:
    before, after = start.config.to_dict(), best.config.to_dict()
    return [
        (f"{section}.{name}", str(before[section].get(name)), str(value))
        for section, values in after.items()
        for name, value in values.items()
        if before[section].get(name) != value
    ]


def _rows(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{name}</th>" for name in header) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "\n".join(lines) + "</table>"


def _trial_table(records: Sequence[TrialRecord], best: TrialRecord) -> str:
    complete = [(record, record.trained) for record in records if record.outcome == COMPLETE]
    ranked = sorted(
        ((one.dev_accuracy, -one.dev_loss, -record.number), record, one)
        for record, one in complete
        if one is not None
    )[::-1][:_SHOWN]
    names = list(dict.fromkeys(name for _, record, _ in ranked for name in record.parameters))
    header = ["trial", "dev, %", "dev loss", "epochs done", "seconds", "size", *names]
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in header) + "</tr>"]
    for _, record, one in ranked:
        cells = [
            *(str(record.number), f"{100 * one.dev_accuracy:.2f}", f"{one.dev_loss:.4f}"),
            *(str(one.epochs), f"{record.seconds:.1f}", show_size(one.size)),
            *(_short(record.parameters.get(name)) for name in names),
        ]
        row = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        style = "best" if record.number == best.number else "other"
        lines.append(f'<tr class="{style}">{row}</tr>')
    return '<div class="wide"><table>' + "\n".join(lines) + "</table></div>"


def _short(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
