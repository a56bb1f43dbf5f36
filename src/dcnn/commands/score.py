"""``dcnn predict --engine``: a folder of scored shards, by this process or by workers on Ray."""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn

from dcnn.batch_predict.files import check_columnar
from dcnn.batch_predict.ray import require_ray, score_on_ray
from dcnn.batch_predict.shards import (
    Outcome,
    ScoringConfig,
    Shard,
    clear_half_written,
    load_scorer,
    model_fingerprint,
    plan_shards,
    score_shard,
)
from dcnn.commands.prediction_lines import check_top, left_without_label
from dcnn.data.readers import TableOptions, find_text_column
from dcnn.errors import DcnnError, StorageError, UserError
from dcnn.predictor import Predictor
from dcnn.terminal import make_console

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class ScoreOptions:
    """The options of the command; see its help."""

    model: Path
    source: Path
    output: Path
    columns: TableOptions
    top: int = 1
    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    abstain_below: float = 0.0


@dataclass
class _Tally:
    """What has become of the shards so far."""

    shards: int
    scored: int = 0
    kept: int = 0
    rows: int = 0
    abstained: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        if outcome.refusal:
            raise StorageError(outcome.refusal)
        if outcome.fault:
            self.faults.append(outcome.fault)
        elif outcome.kept:
            self.kept += 1
        else:
            self.scored += 1
            self.rows += outcome.rows
            self.abstained += outcome.abstained

    @property
    def done(self) -> int:
        return self.scored + self.kept + len(self.faults)


def run_score(options: ScoreOptions) -> None:
    """Score every shard that is not scored yet, and say what became of all."""
    if options.engine not in ENGINES:
        raise UserError(f"--engine {options.engine!r} must be one of {', '.join(ENGINES)}")
    for option, given in (("--workers", options.workers), ("--ray-address", options.address)):
        if given is not None and options.engine != "ray":
            raise UserError(f"{option} is about Ray; add --engine ray, or leave it out")
    check_columnar(options.output / "shards.parquet", as_json=False)
    if options.engine == "ray":
        require_ray()
    # What is wrong with the model is said before any worker starts.
    predictor = Predictor.load(options.model)
    check_top(options.top, predictor.multi_label)
    if options.abstain_below:
        predictor.check_abstains(options.abstain_below)
    shards = plan_shards(options.source, options.output)
    column = find_text_column([shard.source for shard in shards], options.columns)
    manner = ScoringConfig(
        model_fingerprint(options.model),
        replace(options.columns, text_column=column),
        options.top,
        options.abstain_below,
    )
    clear_half_written(shards)
    try:
        with closing(_outcomes(options, manner, shards)) as outcomes:
            _report(options, shards, outcomes)
    finally:
        clear_half_written(shards)  # all workers have ended


def _outcomes(
    options: ScoreOptions, manner: ScoringConfig, shards: list[Shard]
) -> Generator[Outcome, None, None]:
    if options.engine == "ray":
        return score_on_ray(options.model, manner, shards, options.workers, options.address)
    predictor = load_scorer(options.model, manner)
    return (score_shard(predictor, manner, shard) for shard in shards)


def _report(options: ScoreOptions, shards: list[Shard], outcomes: Iterator[Outcome]) -> None:
    tally = _Tally(len(shards))
    console = make_console(stderr=True)
    started = time.monotonic()
    bar = Progress(
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} shards"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[speed]:>9,.0f} sentences/s"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    try:
        with bar:
            task = bar.add_task("", total=len(shards), speed=0.0)
            for outcome in outcomes:
                tally.add(outcome)
                if outcome.fault:
                    console.print(f"dcnn: {outcome.fault}; left out", soft_wrap=True)
                seconds = max(time.monotonic() - started, 1e-9)
                bar.update(task, completed=tally.done, speed=tally.rows / seconds)
    except KeyboardInterrupt:
        print("stopped; what is scored is kept, and the same command goes on", file=sys.stderr)
        raise
    seconds = time.monotonic() - started
    before = f"; {tally.kept:,} were there already" if tally.kept else ""
    console.print(
        f"{options.output}: {tally.scored:,} of {len(shards):,} shards scored, {tally.rows:,} rows "
        f"in {seconds:.1f} s ({tally.rows / max(seconds, 1e-9):,.0f} sentences/s){before}",
        soft_wrap=True,
    )
    if options.abstain_below:
        left = left_without_label(tally.abstained, tally.rows, options.abstain_below)
        console.print(f"dcnn: {left}", soft_wrap=True)
    if tally.faults:
        files = "1 file" if len(tally.faults) == 1 else f"{len(tally.faults)} files"
        raise DcnnError(
            f"{options.source}: left out {files} as said above; all the others are scored: mend "
            "them and run the same command again"
        )
