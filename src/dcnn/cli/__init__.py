"""The command line: one module per command, which holds the command's options and its body.

A command's module is imported when the command runs, so that ``dcnn --help`` and every command
start quickly. ``options.txt`` has the help texts of arguments and options, ``examples.txt`` the
examples. ``dcnn.__main__`` has the exit codes.
"""

import logging
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from dcnn import __version__
from dcnn.errors import UserError

# The order and the text of the list that `dcnn --help` prints.
COMMANDS = {
    "demo": "Train on a built-in corpus, compare with three baselines, and predict.",
    "train": "Train a classifier on labelled texts.",
    "distill": "Train a small classifier on the predictions of a large model.",
    "predict": "Classify texts.",
    "evaluate": "Score a model on labelled texts.",
    "cv": "Cross-validate a classifier on labelled texts.",
    "learning-curve": "Show accuracy against the number of labelled texts.",
    "check": "Show what may be wrong with labelled texts.",
    "explain": "Show why a text gets its label.",
    "suggest": "Choose the texts to label next.",
    "index": "Store texts in a model folder, so that explanations show the most similar ones.",
    "detectors": "Show the n-grams of a corpus that activate each feature detector.",
    "tune": "Search for better settings, and train with the best.",
    "compare": "Train several kinds of models and compare them on a test set.",
    "export": "Write a model as ONNX, as one HTML page, or as a smaller model folder.",
    "serve": "Serve models over HTTP, with a page to explore them.",
    "push": "Upload a model to the Hugging Face Hub or a shared folder.",
    "pull": "Download a model from the Hugging Face Hub or a shared folder.",
    "data": "List, download and verify the corpora of the paper's experiments.",
    "experiment": "Run the paper's experiments, and render their tables.",
}
QUIET = logging.WARNING - 1  # a log level that only --quiet sets; hides the same as WARNING
_QUIET = "Print results, warnings and errors only."
_VERBOSE = "Print more: the time taken, and where an error comes from."
_MODULES = {"push": "hub", "pull": "hub"}  # the others are named like their command


class _LazyGroup(TyperGroup):
    """Imports a command's module when the command is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # for suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        found = getattr(import_module(f"{__name__}.{_MODULES.get(name, name)}"), name)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            for inner, command in group.commands.items():
                _add_help(command, f"{cmd_name} {inner}")
            return group
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(found)
        return _add_help(typer.main.get_command(single), cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _add_help(command: Any, path: str) -> Any:
    """Add what is not in the code: the text of each option, and at the end the examples."""
    texts = dict(line.split(": ", 1) for line in _lines("options.txt") if line)
    command.params += _verbosity_options()
    for parameter in command.params:
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        # Of this command, of all commands of its group, or of all that have the option.
        keys = [f"{path} {name}", f"{path.split()[0]} {name}", name]
        parameter.help = parameter.help or next(texts[key] for key in keys if key in texts)
    shown = [f"  {line}" for line in _lines("examples.txt") if f"dcnn {path} " in f"{line} "]
    examples = ["\b", "Examples:", *shown] if len(shown) > 1 else ["Example:" + shown[0][1:]]
    command.help = "\n".join([command.help or "", "", *examples])  # none with python -OO
    return command


def _set_quiet(wanted: bool) -> None:
    _set_level(wanted, QUIET, logging.DEBUG)


def _set_verbose(wanted: bool) -> None:
    _set_level(wanted, logging.DEBUG, QUIET)


def _set_level(wanted: bool, level: int, opposite: int) -> None:
    log = logging.getLogger("dcnn")
    if wanted and log.level == opposite:
        raise UserError("--quiet and --verbose contradict each other; leave out one of them")
    if wanted:
        log.setLevel(level)


Quiet = Annotated[bool, Option("-q", "--quiet", callback=_set_quiet, help=_QUIET)]
Verbose = Annotated[bool, Option("-v", "--verbose", callback=_set_verbose, help=_VERBOSE)]


def _verbosity_options() -> list[Any]:
    """The options of every command, which its function does not get."""

    def options(quiet: Quiet = False, verbose: Verbose = False) -> None:
        """Only its options are used."""

    only = typer.Typer(add_completion=False, rich_markup_mode=None)
    only.command()(options)
    found = [one for one in typer.main.get_command(only).params if one.name in ("quiet", "verbose")]
    for option in found:
        option.expose_value = False
    return found


def _lines(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text("utf-8").splitlines()


app = typer.Typer(
    name="dcnn",
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def dcnn(
    version: Annotated[
        bool,
        Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Sentence classification with the Dynamic Convolutional Neural Network.

    Start with `dcnn demo`, or with your own data: `dcnn train reviews.csv --out my-model`, then
    `dcnn predict my-model "not a dull moment"`. `dcnn COMMAND --help` describes each command.
    """


def run() -> int:
    """Run the command line and return its exit code; wrong usage is one sentence, as all errors."""
    usage_error: Any = typer.BadParameter.__base__  # typer's own, or click's in older versions
    try:
        code = app(standalone_mode=False)
    except usage_error as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a group without a command
            print(message, file=sys.stderr)
            return int(error.exit_code)
        if hasattr(error.__cause__, "errors"):  # pydantic's message is the rule alone
            fault = error.__cause__.errors()[0]
            rule = fault["msg"].split(",")[0].replace("Input", "input")
            message = f"{error.param.opts[0]} {fault['input']}: {rule}"
        message = message[0].lower() + message[1:].rstrip(".").replace(". Did", "; did")
        message = re.sub(r" \(Possible options: (.*)\)", r"; did you mean \1?", message)
        path = error.ctx.command_path if error.ctx else "dcnn"
        raise UserError(f"{message} (see {path} --help)") from error
    except typer.Abort:  # what it makes of an EOFError
        return 1
    return code if isinstance(code, int) else 0
