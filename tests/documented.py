"""The examples of the documentation, as blocks of code found in its pages.

An example is a fenced block marked ``sh`` or ``python``. Tests run all of them. One that cannot be
run says why in a comment right before it, which readers do not see and nobody can forget:

    <!-- not run: needs the real corpora -->     no test runs it
    <!-- slow: a minute of training -->          only `make test-docs` runs it

One that must not need this package says so: `<!-- alone: the reason -->`. It is run in a process of
its own, in which the package cannot be imported.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
EXAMPLES = ("sh", "python")
# What a fence may say besides: settings and answers, which other tests read; "" is output.
OTHERS = ("", "toml", "json")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^`\n]*)$")
_MARK = re.compile(r"^<!-- (?P<kind>not run|slow|alone): (?P<reason>\S.*?) *-->$")
_SEPARATORS = {"|", ">", "&&", ";"}
_QUOTED_SEPARATOR = re.compile(r"'([|>&;]+)'")
_WORD = "\ue000"  # before what is quoted


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: its file, relative to the repository.
        line: the number of its first line of code.
        language: what the fence says.
        text: the code.
        mark: ``not run``, ``slow``, ``alone`` or nothing.
        reason: why it is marked.
        output: the unmarked block that follows at once, which shows what the example prints.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    reason: str = ""
    output: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read_blocks(page: str, text: str) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    blocks: list[Block] = []
    lines = text.splitlines()
    number, before, last_end = 0, "", -9
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            before = lines[number].strip() or before
            number += 1
            continue
        indent = len(opening["indent"])
        code = [
            line[indent:]
            for line in takewhile(lambda line: line.strip() != "```", lines[number + 1 :])
        ]
        body = "\n".join(code) + "\n"
        language = opening["language"].strip()
        mark = _MARK.match(before)
        if language == "" and blocks and number - last_end <= 2:
            shown = blocks[-1]
            blocks[-1] = Block(**{**vars(shown), "output": body})
        blocks.append(
            Block(
                page=page,
                line=number + 2,
                language=language,
                text=body,
                mark=mark["kind"] if mark else "",
                reason=mark["reason"] if mark else "",
            )
        )
        number += len(code) + 2
        before, last_end = "", number - 1
    return blocks


@cache
def all_blocks() -> list[Block]:
    """The blocks of every page."""
    return [
        block for page in PAGES for block in read_blocks(name_of(page), page.read_text("utf-8"))
    ]


def examples_of(page: str) -> list[Block]:
    """The blocks of a page that can be run or say why not."""
    return [block for block in all_blocks() if block.page == page and block.language in EXAMPLES]


@dataclass(frozen=True)
class Command:
    """One command of a shell example.

    Attributes:
        place: page and line.
        words: the command and its arguments, unquoted.
        piped: whether it reads what the one before it prints.
        into: the file that takes its output, if any.
        variables: those set for it alone.
    """

    place: str
    words: tuple[str, ...]
    piped: bool = False
    into: str = ""
    variables: tuple[tuple[str, str], ...] = ()


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a shell example, in their order."""
    number, lines = block.line, block.text.splitlines()
    while lines:
        start, line = number, lines.pop(0)
        while line.endswith("\\") and lines:
            line, number = line[:-1] + lines.pop(0), number + 1
        number += 1
        yield from _commands_of_line(f"{block.page}:{start}", line)


def _commands_of_line(place: str, line: str) -> Iterator[Command]:
    # A quoted separator is a word; the lexer would take its quotes away and leave it one.
    line = _QUOTED_SEPARATOR.sub(lambda quoted: f"'{_WORD}{quoted[1]}'", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    words: list[str] = []
    piped = False
    tokens = list(lexer)
    while tokens:
        token = tokens.pop(0)
        if token not in _SEPARATORS:
            words.append(token.replace(_WORD, ""))
            continue
        into = tokens.pop(0) if token == ">" else ""
        yield _command(place, words, piped, into)
        piped, words = token == "|", []
        if into and tokens:  # after a redirection another command may follow
            piped = tokens.pop(0) == "|"
    if words:
        yield _command(place, words, piped, "")


def _command(place: str, words: list[str], piped: bool, into: str) -> Command:
    variables = []
    rest = list(words)
    while rest and re.match(r"[A-Z_]+=", rest[0]):
        name, _, value = rest.pop(0).partition("=")
        variables.append((name, value))
    return Command(place, tuple(rest), piped, into, tuple(variables))
