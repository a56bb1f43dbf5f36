"""The command line: parse and call; ``dcnn.commands`` does the work and prints.

A command's module is imported when the command runs; ``dcnn.__main__`` has the exit codes.
"""

from typing import Annotated

import typer

from dcnn import __version__
from dcnn.cli.corpora import data_app
from dcnn.cli.experiments import experiment_app
from dcnn.cli.exporting import export
from dcnn.cli.inspecting import detectors, explain
from dcnn.cli.predicting import evaluate, predict
from dcnn.cli.serving import serve
from dcnn.cli.sharing import pull, push
from dcnn.cli.training import demo, train
from dcnn.cli.tuning import compare, tune

app = typer.Typer(
    name="dcnn",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The Dynamic Convolutional Neural Network for sentences: train, predict, evaluate, "
    "explain, look at its detectors, export, share.",
)
app.add_typer(data_app, name="data")
app.add_typer(experiment_app, name="experiment")
for command in (
    demo,
    train,
    predict,
    evaluate,
    explain,
    detectors,
    export,
    serve,
    tune,
    compare,
    push,
    pull,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass
