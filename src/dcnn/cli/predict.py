"""``dcnn predict``: one line or row out for every text in, in order, in bounded memory.

``dcnn predict MODEL TEXT ...`` without options does not come here: see ``dcnn.__main__``.
"""

import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dcnn.batch_predict import columnar as scoring
from dcnn.batch_predict.columnar import CHUNK, Outcome, is_columnar, require_columnar
from dcnn.batch_predict.lines import OutputFormat, abstention_summary, write_csv
from dcnn.cli import console as cli
from dcnn.data.arrow import ARROW
from dcnn.data.readers import TableOptions, find_text_column, is_shard, read_rows
from dcnn.data.records import JSON_LINES, MAX_LINE, PLAIN, SEPARATORS
from dcnn.errors import DataError, DcnnError, StorageError, UserError, needs_extra
from dcnn.files import check_place, standard_output, write_atomically
from dcnn.predictor import Predictor

ENGINES = ("local", "ray")
_FORMATS = ".tsv, .csv, .jsonl, .parquet, .arrow, .feather, or .txt, which is tab-separated"


def predict(
    model: cli.ModelFolder,
    texts: Annotated[list[str] | None, Argument(metavar="TEXT")] = None,
    source: Annotated[Path | None, Option("--input")] = None,
    output: Path | None = None,
    skip_bad_shards: Annotated[bool, Option("--skip-bad-shards")] = False,
    as_json: cli.Json = False,
    top: cli.Count = 1,
    abstain_below: cli.Probability = None,
    abstain: Annotated[bool, Option("--abstain")] = False,
    target_precision: cli.Probability = None,
    labels_separator: Annotated[str, Option(metavar="S")] = OutputFormat.separator,
    text_column: str | None = None,
    encoding: str = "utf-8",
    no_header: cli.NoHeader = False,
    engine: Annotated[str | None, Option(metavar="local|ray")] = None,
    workers: cli.OptionalCount = None,
    ray_address: str | None = None,
) -> None:
    """Classify texts given as arguments, in files, or as lines on standard input.

    Prints one line per text: label, probability and the text, separated by tabs; with --json one
    object per line, with the probability of every label. A text without a label (--abstain,
    --abstain-below) has an empty field there, or null. A multi-label model prints all labels that
    reach their thresholds, separated by --labels-separator, and their probabilities. A .csv file
    has names of columns in its first line.

    With --engine, --output is a folder that gets one Parquet file per file of --input. Files that
    are scored already are kept, so a stopped command continues when it is repeated.
    """
    for option, value in (("--workers", workers), ("--ray-address", ray_address)):
        if value is not None and engine != "ray":
            raise UserError(f"{option} is for Ray; add --engine ray, or leave it out")
    if abstain_below is not None and (abstain or target_precision is not None):
        option = "--abstain" if target_precision is None else "--target-precision"
        raise UserError(
            f"{option} and --abstain-below both give the threshold; leave out one of them"
        )
    stored = abstain or target_precision is not None
    columns = TableOptions(text_column, encoding=encoding, header=not no_header)
    form = OutputFormat(as_json, top, abstain_below, labels_separator)
    if engine is not None:
        if source is None or output is None or texts or as_json:
            raise UserError(
                "--engine scores files into a folder; give --input and --output, no texts, and "
                "leave out --json"
            )
        if engine not in ENGINES:
            raise UserError(f"--engine {engine!r} must be one of {', '.join(ENGINES)}")
        require_columnar(output / "shards.parquet")
        if engine == "ray":
            with needs_extra("--engine ray", "ray"):
                import ray.data  # noqa: F401
        predictor = Predictor.load(model)
        if stored:
            form = replace(form, abstain_below=predictor.abstention_threshold(target_precision))
        form.check(predictor, columnar=True)  # before any worker starts
        shards = scoring.plan_shards(source, output)
        column = find_text_column([shard.source for shard in shards], columns)
        columns = replace(columns, text_column=column)
        fingerprint, below = scoring.model_fingerprint(model), form.abstain_below or 0.0
        config = scoring.ScoringConfig(fingerprint, columns, form.top, below)
        scoring.clear_half_written(shards)
        try:
            if engine == "ray":
                outcomes = scoring.score_on_ray(model, config, shards, workers, ray_address)
            else:
                scorer = scoring.load_scorer(model, config)
                outcomes = (scoring.score_shard(scorer, config, shard) for shard in shards)
            with closing(outcomes):
                _report(outcomes, len(shards), source, output, below, predictor)
        finally:
            scoring.clear_half_written(shards)  # all workers have ended
        return
    if texts and source:
        raise UserError("give texts as arguments or a file with --input, not both")
    if skip_bad_shards and source is None:
        raise UserError("--skip-bad-shards is about the files of --input; give --input")
    if source is not None and output is not None and is_shard(source, output):
        if output.resolve() == source.resolve():
            raise UserError(f"--output {output} is the file of --input; name another one")
        raise UserError(
            f"--output {output} would be one of the files of --input {source}; "
            "name one that is elsewhere"
        )
    columnar = output is not None and is_columnar(output)
    if output is not None:
        check_place("--output", output)
        form = _format_of(output, form)
        if columnar:
            require_columnar(output)
    predictor = Predictor.load(model)
    if stored:
        form = replace(form, abstain_below=predictor.abstention_threshold(target_precision))
    form.check(predictor, columnar=columnar)
    bad: list[DataError] = []
    n_texts = n_abstained = 0
    with _destination(output, predictor, form) as write:
        if source is not None:
            remaining = _texts_of_files(source, columns, skip_bad_shards, bad)
        else:
            remaining = iter(texts) if texts else _lines_on_stdin(encoding)
        while chunk := list(islice(remaining, CHUNK)):
            n_abstained += write(chunk)
            n_texts += len(chunk)
    if form.abstain_below is not None:
        summary = abstention_summary(n_abstained, n_texts, form.abstain_below, predictor)
        print(f"dcnn: {summary}", file=sys.stderr)
    if bad:
        raise DcnnError(
            f"{source}: left out {_count_files(bad)}, reported above; all others are predicted"
        )


def _format_of(output: Path, form: OutputFormat) -> OutputFormat:
    """``form`` as the suffix of the file says; one that names no format is refused."""
    suffix = output.suffix.lower()
    if suffix in JSON_LINES:
        return replace(form, as_json=True)
    if suffix in ("", PLAIN):
        return form
    if suffix not in (*SEPARATORS, *ARROW):
        raise UserError(
            f"--output {output}: the suffix {suffix} names no format that can be written; "
            f"use one of {_FORMATS}"
        )
    if form.as_json:
        raise UserError(
            f"--json writes JSON Lines, and --output {output} names another format; "
            "leave out --json, or name a .jsonl file"
        )
    return replace(form, as_csv=suffix == ".csv")


def _texts_of_files(
    source: Path, columns: TableOptions, skip: bool, bad: list[DataError]
) -> Iterator[str]:
    """The texts of ``source``; with ``skip``, unreadable files are added to ``bad``."""

    def leave_out(error: DataError) -> None:
        bad.append(error)
        print(f"dcnn: {error}; left out", file=sys.stderr)

    on_bad_shard = leave_out if skip else None
    remedy = "; or pass --skip-bad-shards, to continue without such files"
    rows = read_rows(source, columns, labels=False, on_bad_shard=on_bad_shard, remedy=remedy)
    return (row.text for row in rows)


def _lines_on_stdin(encoding: str) -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("standard input is closed; give texts as arguments or with --input")
    if sys.stdin.isatty():
        print("Reading texts from the keyboard, one per line; end with Ctrl-D.", file=sys.stderr)
    try:
        # An invalid byte spoils its own text, not the whole stream.
        lines = io.TextIOWrapper(sys.stdin.buffer, encoding, errors="replace", newline="\n")
        for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE), "")):
            if len(line) == MAX_LINE and not line.endswith("\n"):
                break
            yield line.removeprefix("\ufeff" if number == 0 else "").rstrip("\r\n")
        else:
            return
    except (LookupError, ValueError) as error:
        raise UserError(
            f"standard input cannot be read with --encoding {encoding!r} ({error}); "
            "use for instance utf-8 or latin-1"
        ) from error
    raise UserError(
        f"standard input, line {number + 1}: longer than {MAX_LINE:,} characters; give one text "
        "per line"
    )


@contextmanager
def _destination(
    output: Path | None, predictor: Predictor, form: OutputFormat
) -> Iterator[Callable[[Sequence[str]], int]]:
    """Yields the function that classifies and writes texts, and counts those without a label."""
    if output is None:
        stdout = standard_output("name a file with --output")
        yield lambda texts: form.write(stdout, predictor, texts)
        stdout.flush()
        return
    with write_atomically(output) as stream:
        if is_columnar(output):
            with scoring.columnar_writer(stream, output.suffix.lower(), predictor, form) as write:
                yield write
            return
        lines = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
        if form.as_csv:
            write_csv(lines, [[*form.columns(predictor), "text"]])
        yield lambda texts: form.write(lines, predictor, texts)
        lines.flush()
        lines.detach()


def _count_files(bad: Sequence[object]) -> str:
    return "1 file" if len(bad) == 1 else f"{len(bad)} files"


def _report(
    outcomes: Iterator[Outcome],
    n_shards: int,
    source: Path,
    output: Path,
    abstain_below: float,
    predictor: Predictor,
) -> None:
    """Show how far the shards are, and report at the end; raises if files were left out."""
    console = cli.make_console(stderr=True)
    counts: Counter[str] = Counter()
    faults: list[str] = []
    started = time.monotonic()
    shown = "{task.completed:,.0f} of {task.total:,.0f} shards"
    bar = cli.progress_bar(console, shown, "{task.fields[speed]:>9,.0f} sentences/s")
    seconds = speed = 0.0
    try:
        with bar:
            task = bar.add_task("", total=n_shards, speed=speed)
            for done, outcome in enumerate(outcomes, start=1):
                if outcome.refusal:
                    raise StorageError(outcome.refusal)
                if outcome.fault:
                    faults.append(outcome.fault)
                    console.print(f"dcnn: {outcome.fault}; left out")
                elif outcome.kept:
                    counts["kept"] += 1
                else:
                    counts.update(scored=1, rows=outcome.rows, abstained=outcome.abstained)
                seconds = max(time.monotonic() - started, 1e-9)
                speed = counts["rows"] / seconds
                bar.update(task, completed=done, speed=speed)
    except KeyboardInterrupt:
        print("stopped; scored shards are kept, and the same command continues", file=sys.stderr)
        raise
    kept = f"; {counts['kept']:,} were scored already" if counts["kept"] else ""
    console.print(
        f"{output}: {counts['scored']:,} of {n_shards:,} shards scored, {counts['rows']:,} rows "
        f"in {seconds:.1f} s ({speed:,.0f} sentences/s){kept}"
    )
    if abstain_below:
        summary = abstention_summary(counts["abstained"], counts["rows"], abstain_below, predictor)
        console.print(f"dcnn: {summary}")
    if faults:
        raise DcnnError(
            f"{source}: left out {_count_files(faults)}, reported above; all others are scored: "
            "fix these and run the same command again"
        )
