"""No page names a command, an option, a make target or an extra that is not there.

This also holds for the examples that are not run, for what pages say in passing (`dcnn train
--resume`), and for the examples in the help texts.
"""

import re
import tomllib
from typing import Any

import pytest
import typer

from dcnn.cli import app
from dcnn.config import Config, from_plain
from dcnn.experiments.recipes import DataConfig, DistillationConfig
from documented import PAGES, ROOT, Block, Command, all_blocks, commands_of, name_of

CLI = typer.main.get_command(app)
BLOCKS = all_blocks()
COMMANDS = [command for block in BLOCKS if block.language == "sh" for command in commands_of(block)]
PROSE = [
    (name_of(page), " ".join(code.split()))
    for page in PAGES
    for code in re.findall(
        r"(?<!`)`([^`]+)`(?!`)",
        re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text("utf-8")),
    )
]


def parse(arguments: list[str]) -> None:
    """What the command line does before it calls a command: it knows all words, or it raises."""
    command: Any = CLI
    context = command.make_context("dcnn", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)


def of_program(program: str) -> list[Any]:
    return [
        pytest.param(command, id=f"{command.place} {' '.join(command.words)}")
        for command in COMMANDS
        if command.words[:1] == (program,)
    ]


@pytest.mark.parametrize("command", of_program("dcnn"))
def test_a_command_line_is_understood(command: Command):
    parse(list(command.words[1:]))


def named_in_prose() -> list[Any]:
    return [
        pytest.param(code, id=f"{page} {code}")
        for page, code in sorted(set(PROSE))
        if re.match(r"dcnn [a-z]", code)
    ]


@pytest.mark.parametrize("code", named_in_prose())
def test_what_is_said_in_passing_names_a_command_and_its_options(code: str):
    command: Any = CLI
    context = command.context_class(command, info_name="dcnn")
    words = code.split()[1:]
    while words and hasattr(command, "list_commands"):
        name = words.pop(0)
        if name == "|":  # `dcnn data list | fetch`: the group is what is named
            return
        found = command.get_command(context, name.rstrip(","))
        assert found is not None or name.isupper(), f"there is no command {name!r}"
        command = found or command
    known = {option for parameter in command.params for option in parameter.opts}
    if not hasattr(command, "list_commands"):
        assert {word for word in words if word.startswith("--")} <= known


def help_examples() -> list[Any]:
    def walk(command: Any, context: Any) -> list[str]:
        if hasattr(command, "list_commands"):
            return [
                line
                for name in command.list_commands(context)
                for line in walk(command.get_command(context, name), context)
            ]
        return re.findall(r"^ *(?:Example: )?(dcnn .*)$", command.help or "", re.MULTILINE)

    return walk(CLI, CLI.context_class(CLI, info_name="dcnn"))


@pytest.mark.parametrize("line", help_examples())
def test_an_example_of_a_help_text_is_understood(line: str):
    for command in commands_of(Block("help", 1, "sh", line)):
        if command.words[0] == "dcnn":
            parse(list(command.words[1:]))


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {words[1] for words in _shell_words("make") if len(words) > 1}
    named |= {code.split()[1] for _, code in PROSE if re.match(r"make [a-z]", code)}
    assert named <= targets


def test_every_extra_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = [" ".join(words) for words in _shell_words("pip")]
    installed += [code for _, code in PROSE if code.startswith("pip install")]
    named = {
        extra
        for line in installed
        for extras in re.findall(r"\[([a-z,]+)\]", line)
        for extra in extras.split(",")
    }
    assert named
    assert named <= project["optional-dependencies"].keys()


def test_every_script_exists():
    run = [words[1] for words in _shell_words("python") if len(words) > 1]
    run += [code.split()[1] for _, code in PROSE if code.startswith("python ")]
    for script in (word for word in run if word != "-m"):
        assert (ROOT / script).is_file(), f"there is no {script}"


def _shell_words(program: str) -> list[tuple[str, ...]]:
    return [command.words for command in COMMANDS if command.words[:1] == (program,)]


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "toml"], ids=lambda block: block.place
)
def test_settings_in_toml_are_taken(block: Block):
    sections = tomllib.loads(block.text)
    settings = {
        name: sections.pop(name) for name in ("text", "model", "training") if name in sections
    }
    Config.from_dict(settings, where=block.place)
    # A recipe has more; a page may show settings of several experiments side by side.
    from_plain(DataConfig, sections.pop("data", {}), "data")
    from_plain(DistillationConfig, sections.pop("distillation", {}), "distillation")
    for kind, differing in sections.items():
        Config.from_dict({"model": {"kind": kind}, **differing}, where=block.place)
