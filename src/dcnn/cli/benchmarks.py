"""``dcnn bench``: how fast it is, beside eager torch in the same run."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import Json, MarkdownFiles

bench_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure speed and memory beside eager torch, and render the tables.",
)

_TITLES = {
    "predict-one": "One sentence of 18 words to probabilities, one thread",
    "predict-batch": "A batch of 256, and a file of texts to labels",
    "train-step": "A step of 64 sentences, and a whole training",
    "startup": "A whole process that predicts: time and memory",
    "layer": "The fused layer alone, forward and backward",
    "gpu": "A training step on a CUDA device, small batch and large, and the layers",
}


def _make_command(case: str, title: str) -> Callable[..., None]:
    def command(
        as_json: Json = False,
        out: Annotated[
            Path | None, typer.Option("--out", help="Write the JSON there as well.")
        ] = None,
        rounds: Annotated[
            int, typer.Option("--rounds", min=1, help="Turns each takes; slow ones take fewer.")
        ] = 20,
    ) -> None:
        from dcnn.commands.bench import run_bench

        run_bench(case, rounds, as_json, out)

    command.__doc__ = f"""{title}.

    Ours and the baseline take turns on the same network, that of SST binary; figures are medians,
    the spread is the quartiles. Measure on a machine that does nothing else.

    \b
    Examples:
      dcnn bench {case}
      dcnn bench {case} --json
      dcnn bench {case} --out results/bench/{case}.json
    """
    return command


for _name, _title in _TITLES.items():
    bench_app.command(_name)(_make_command(_name, _title))


@bench_app.command()
def tables(
    results: Annotated[
        Path, typer.Option("--results", help="The folder of the figures, one file a case.")
    ] = Path("results/bench"),
    write: MarkdownFiles = None,
) -> None:
    """Render the tables from the files; measure nothing.

    \b
    Examples:
      dcnn bench tables
      dcnn bench tables --write docs/performance.md
    """
    from dcnn.commands.bench import run_tables

    run_tables(results, write or [])
