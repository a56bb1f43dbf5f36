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
from typing import Annotated, Any

from typer import Argument, Option

from dcnn.batch_predict import columnar as scoring
from dcnn.batch_predict.columnar import CHUNK, RANKED, Outcome
from dcnn.batch_predict.lines import SEPARATOR, OutputFormat, abstention_summary
from dcnn.cli import console as cli
from dcnn.data.labels import Place
from dcnn.data.readers import Row, TableOptions, find_text_column, is_shard, read_rows
from dcnn.data.records import JSON_LINES, MAX_LINE, PLAIN, SEPARATORS
from dcnn.data.tables import check_table
from dcnn.errors import DataError, DcnnError, StorageError, UserError, needs_extra
from dcnn.files import check_place, standard_output, write_atomically
from dcnn.predictor import Predictor

ENGINES = ("local", "ray")
LINES = ("", PLAIN)  # suffixes of files that have the lines of standard output


@cli.grouped
def predict(
    model: cli.ModelFolder,
    reading: cli.TextTable,
    texts: Annotated[list[str] | None, Argument(metavar="TEXT")] = None,
    source: Annotated[Path | None, Option("--input")] = None,
    output: Path | None = None,
    skip_bad_shards: Annotated[bool, Option("--skip-bad-shards")] = False,
    keep: Annotated[bool | None, Option("--keep/--no-keep", show_default=False)] = None,
    escape_formulas: Annotated[bool, Option("--escape-formulas")] = False,
    as_json: cli.Json = False,
    top: cli.Count = 1,
    all_labels: Annotated[bool, Option("--all")] = False,
    abstain_below: cli.Probability = None,
    abstain: Annotated[bool, Option("--abstain")] = False,
    target_precision: cli.Probability = None,
    labels_separator: Annotated[str, Option(metavar="S")] = SEPARATOR,
    engine: Annotated[str | None, Option(metavar="local|ray")] = None,
    workers: cli.OptionalCount = None,
    ray_address: str | None = None,
) -> None:
    """Classify texts given as arguments, in files, or as lines on standard input.

    Prints one line per text: label, probability and the text, separated by tabs; with --json one
    object per line, with the probability of every label. A text without a label (--abstain,
    --abstain-below) has an empty field there, or null. A multi-label model prints all labels that
    reach their thresholds, separated by --labels-separator, and their probabilities.

    A file of --output is a table, unless it ends in .txt. It has all columns of --input, and the
    new columns `label` and `probability`; where the input has a column of that name, the new one
    ends in _predicted.

    With --engine, --output is a folder that gets one Parquet file per file of --input. Files that
    are already scored are skipped, so a stopped command continues when it is repeated.
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
    columns = reading()
    form = OutputFormat(as_json, top, abstain_below, labels_separator, all_labels)
    if keep is not None and (source is None or output is None):
        option = "--keep" if keep else "--no-keep"
        raise UserError(f"{option} is about the columns of --input in --output; give both")
    is_separated = output is not None and output.suffix.lower() in SEPARATORS and engine is None
    if escape_formulas and not is_separated:
        raise UserError(
            "--escape-formulas is for spreadsheets; name a .csv or .tsv file with --output"
        )
    if engine is not None:
        if source is None or output is None or texts or as_json:
            raise UserError(
                "--engine scores files into a folder; give --input and --output, no texts, and "
                "leave out --json"
            )
        if engine not in ENGINES:
            raise UserError(f"--engine {engine!r} must be one of {', '.join(ENGINES)}")
        with needs_extra("--engine", "data"):
            import pyarrow  # noqa: F401
        if engine == "ray":
            with needs_extra("--engine ray", "ray"):
                import ray.data  # noqa: F401
        predictor = Predictor.load(model)
        if stored:
            form = form._replace(abstain_below=predictor.abstention_threshold(target_precision))
        form.check(predictor, columnar=True)  # before any worker starts
        shards = scoring.plan_shards(source, output)
        column = find_text_column([shard.source for shard in shards], columns)
        columns = replace(columns, text_column=column)
        fingerprint, below = scoring.model_fingerprint(model), form.abstain_below or 0.0
        keeps = keep is not False
        config = scoring.ScoringConfig(fingerprint, columns, form.top, below, keeps, all_labels)
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
    is_table = output is not None and output.suffix.lower() not in LINES
    if output is not None:
        _check_output(output, form, keep)
    predictor = Predictor.load(model)
    if stored:
        form = form._replace(abstain_below=predictor.abstention_threshold(target_precision))
    typed = is_table and not is_separated  # has lists in place of separated labels
    form.check(predictor, columnar=typed)
    bad: list[DataError] = []
    kept: dict[str, Any] | None = {} if is_table and source and keep is not False else None
    n_texts = n_abstained = 0
    with _destination(output, predictor, form, kept, escape_formulas) as write:
        if source is not None:
            rows = _rows_of_files(source, columns, skip_bad_shards, bad, kept)
        else:
            given = iter(texts) if texts else _lines_on_stdin(columns.encoding)
            rows = (Row(text, None, None, Place("", 0)) for text in given)
        while chunk := list(islice(rows, min(CHUNK, 1 + RANKED // len(predictor.classes)))):
            n_abstained += write(chunk)
            n_texts += len(chunk)
        if not n_texts:
            write([])  # a table without rows has its columns all the same
    if form.abstain_below is not None:
        summary = abstention_summary(n_abstained, n_texts, form.abstain_below, predictor)
        cli.note(f"dcnn: {summary}")
    if bad:
        raise DcnnError(
            f"{source}: left out {_count_files(bad)}, reported above; all others are predicted"
        )


def _check_output(output: Path, form: OutputFormat, keep: bool | None) -> None:
    """Check the name of the output before any work is done."""
    suffix = output.suffix.lower()
    if suffix in LINES:
        check_place("--output", output)
        if keep:
            raise UserError(
                f"--keep writes columns, and --output {output} has lines; name a .csv file"
            )
        return
    check_table("--output", output)
    if form.as_json and suffix not in JSON_LINES:
        raise UserError(
            f"--json writes JSON Lines, and --output {output} names another format; "
            "leave out --json, or name a .jsonl file"
        )


def _rows_of_files(
    source: Path,
    columns: TableOptions,
    skip: bool,
    bad: list[DataError],
    kept: dict[str, Any] | None,
) -> Iterator[Row]:
    """The rows of ``source``; with ``skip``, unreadable files are added to ``bad``."""

    def leave_out(error: DataError) -> None:
        bad.append(error)
        print(f"dcnn: {error}; left out", file=sys.stderr)

    on_bad_shard = leave_out if skip else None
    remedy = "; or pass --skip-bad-shards, to continue without such files"
    return read_rows(
        source, columns, labels=False, on_bad_shard=on_bad_shard, remedy=remedy, keep=kept
    )


def _lines_on_stdin(encoding: str) -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("standard input is closed; give texts as arguments or with --input")
    if sys.stdin.isatty():
        cli.note("Reading texts from the keyboard, one per line; end with Ctrl-D.")
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
    output: Path | None,
    predictor: Predictor,
    form: OutputFormat,
    kept: dict[str, Any] | None,
    escape: bool,
) -> Iterator[Callable[[Sequence[Row]], int]]:
    """Yields the function that classifies and writes rows, and counts those without a label."""
    if output is None:
        stdout = standard_output("name a file with --output")
        yield lambda rows: form.write(stdout, predictor, [row.text for row in rows])
        stdout.flush()
        return
    suffix = output.suffix.lower()
    with write_atomically(output) as stream:
        if suffix not in LINES:
            with scoring.prediction_writer(
                stream, suffix, predictor, form, kept, escape=escape
            ) as write:
                yield write
            return
        lines = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
        yield lambda rows: form.write(lines, predictor, [row.text for row in rows])
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
