"""How large a model folder will be, before anything is trained.

The weights follow from the shapes and the vocabulary from the word counts. What a run notes of
itself in ``config.json`` and the card is not known beforehand: an allowance stands for it, so that
a prediction is never too small.


The charts of a report: how the search went, what mattered, what size buys.

The trials as ``trials.csv``.

What is left of a search beside the model: a page with charts, all trials, the best settings.
"""

import csv
import html
import io
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from optuna import Study
from optuna.exceptions import ExperimentalWarning
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from dcnn.artifact import Artifact, Label, folder_size
from dcnn.config import Config, to_toml
from dcnn.errors import UserError
from dcnn.files import write_atomically
from dcnn.plots import GREEN, GREY, RED, draw_svg
from dcnn.text.encoder import Encoder
from dcnn.text.subwords import learn_tokenizer
from dcnn.text.vocabulary import Vocabulary
from dcnn.tuning.search import COMPLETE, PRUNED, TrialRecord

FEWEST_WORDS = 100  # a network that leaves room for fewer is not worth training
_FACTS = 4096
_TENSOR_HEADER = 160
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Z]*)")


def parse_size(text: str) -> int:
    """Bytes of ``2MB``, ``500 kB``, ``1.5MiB`` or a plain number."""
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None or match[2] not in _UNITS or not (size := float(match[1]) * _UNITS[match[2]]):
        raise UserError(f"--max-size {text!r} must be a size above 0, such as 2MB or 500KB")
    return int(size)


def show_size(size: float) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} KB"


class FolderSizes:
    """The sizes of the folders that models of these texts may have.

    Args:
        name: of the folder.
        texts: the training set.
        config: whose tokenizer splits them; a search leaves that as it is.
        classes: the labels.
        limit: the most bytes a folder may take; none is no limit.
    """

    def __init__(
        self,
        name: str,
        texts: Sequence[str],
        config: Config,
        classes: Sequence[Label],
        limit: int | None = None,
    ) -> None:
        self.name, self.classes, self.limit = name, tuple(classes), limit
        self.tokenizer, (words, ids, _) = learn_tokenizer(config.text, texts)
        counts = np.bincount(ids, minlength=len(words))
        order = np.argsort(-counts, kind="stable")
        self._counts = counts[order]
        lines = [len(json.dumps(words[i], ensure_ascii=False).encode()) + 2 for i in order]
        self._bytes = np.concatenate([[0], np.cumsum(lines, dtype=np.int64)])

    def words(self, config: Config) -> int:
        """How many words the model will know, as ``Encoder.learn`` decides."""
        kept = int((self._counts >= config.text.min_count).sum())
        return min(kept, config.text.max_size) if config.text.max_size else kept

    def of(self, config: Config, words: int | None = None) -> int:
        """An upper bound of the folder's bytes, tight to some kilobytes."""
        words = self.words(config) if words is None else words
        shapes = config.model.parameter_shapes(words + 1, len(self.classes))
        weights = sum(4 * math.prod(shape) + _TENSOR_HEADER for shape in shapes.values())
        empty = Encoder(self.tokenizer, Vocabulary([]))
        rest = folder_size(self.name, Artifact(config, self.classes, empty, {}))
        return weights + int(self._bytes[words]) + rest + _FACTS

    def fitted(self, config: Config) -> Config | None:
        """``config`` with as many of its words, the most frequent, as the limit has room for.

        None where the network leaves room for hardly any.
        """
        if self.limit is None or self.of(config) <= self.limit:
            return config
        low, high = 0, self.words(config)  # what fits, and what does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.of(config, middle) <= self.limit else (low, middle)
        if low < min(FEWEST_WORDS, self.words(config)):
            return None
        return replace(config, text=replace(config.text, max_size=low))


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


_FACTS_TABLES = ("trial", "outcome", "dev_accuracy", "dev_loss", "epochs_done", "seconds", "bytes")


def trials_csv(records: Sequence[TrialRecord]) -> str:
    """A line a trial: how it went, then every setting that differs between trials."""
    settings = [_flat(record) for record in records]
    changing = [name for name in settings[0] if len({repr(one.get(name)) for one in settings}) > 1]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*_FACTS_TABLES, *changing])
    for record, setting in zip(records, settings, strict=True):
        one = record.trained
        trained = (one.dev_accuracy, one.dev_loss, one.epochs) if one else ("", "", "")
        writer.writerow(
            [
                *(record.number, record.outcome, *trained, f"{record.seconds:.2f}"),
                one.size if one else "",
                *(setting.get(name, "") for name in changing),
            ]
        )
    return stream.getvalue()


def _flat(record: TrialRecord) -> dict[str, object]:
    return {
        f"{section}.{name}": value
        for section, values in record.config.to_dict().items()
        for name, value in values.items()
    }


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
