"""The reference of the commands, generated from the help texts of the command line."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from dcnn.cli import app

_INTRODUCTION = """# Commands

What `dcnn COMMAND --help` says. A command ends with exit code 0 when it is done, 1 when the work
failed (or `dcnn check` found an error in the data), 2 when the input is wrong (one sentence says
what, where and how to fix it) and 130 when it was stopped.
"""


def command_reference() -> str:
    """One page with a section per command."""
    root = typer.main.get_command(app)
    context = root.context_class(root, info_name="dcnn")
    sections = [_section(command, context) for command, context in _commands(root, context)]
    return "\n".join([_INTRODUCTION, *sections])


def _commands(group: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    """All commands with their contexts, those of a group after one another."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.context_class(
            command, info_name=name, parent=context, **command.context_settings
        )
        if hasattr(command, "list_commands"):
            yield from _commands(command, inner)
        else:
            yield command, inner


def _section(command: Any, context: Any) -> str:
    text, examples = _split_help(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## {context.command_path}", text, f"```\n{context.command_path} {usage}\n```"]
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [
        f"| `{_cell(names)}` | {_prose(text)} |"
        for names, text in filter(None, records)
        if "--help" not in names
    ]
    if rows:
        parts.append("\n".join(["| argument or option | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _split_help(help_: str) -> tuple[str, list[str]]:
    """The text of a help, and the commands among its examples."""
    text, _, shown = re.sub("\b\n?", "", help_).partition("Example")
    examples = [line for line in re.split(r"\n|s?: ", shown) if line.strip().startswith("dcnn ")]
    return text.strip(), [line.strip() for line in examples]


def _prose(text: str) -> str:
    """Help as Markdown that shows its stars and brackets as they are."""
    return re.sub(r"([*<>\[\]_])", r"\\\1", _cell(" ".join(text.split())))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
