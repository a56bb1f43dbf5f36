"""Runs the examples of a page as a reader would who follows it from top to bottom.

Commands run in this process, since to start Python and torch anew takes longer than most of them.
An example stands for itself: what it writes with ``--out`` or ``save`` may be there already from
one before it, and is then removed first.
"""

import ast
import contextlib
import io
import os
import shutil
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dcnn.cli import app
from documented import Block, Command, commands_of
from serve_process import Running, start_server

# What takes as long as one likes is asked for less, since a later option wins. How much of it there
# is to do is all that differs: the tests of these commands look at the rest.
LESS = {
    "train": ("--epochs", "4", "--set", "model.dim=24", "--set", "model.maps=[3]"),
    "distill": ("--epochs", "1"),
    "tune": ("--trials", "1"),
    "compare": ("--seeds", "1", "--models", "dcnn,binb"),
}
# Programs of the system that examples may call beside dcnn.
PROGRAMS = ("cat", "echo", "head", "printf")
DOCUMENTED_ADDRESS = "http://127.0.0.1:8000"


class ExampleRunner:
    """A reader's folder, Python session and server.

    Args:
        folder: where commands run.
        names: what Python examples take as given.
    """

    def __init__(self, folder: Path, names: Mapping[str, Callable[[], Any]]) -> None:
        self._folder = folder
        self._given = names
        self._session: dict[str, Any] = {"__name__": "__main__"}
        self._server: Running | None = None

    def run(self, block: Block) -> str:
        """Run an example; what it printed."""
        with contextlib.chdir(self._folder):
            if block.mark == "alone":
                return _run_alone(block)
            return self._run_python(block) if block.language == "python" else self._run_sh(block)

    def close(self) -> None:
        """Stop the server, if an example has started one."""
        if self._server is not None:
            self._server.process.kill()
            self._server.process.communicate()
            self._server = None

    def _run_python(self, block: Block) -> str:
        nodes = list(ast.walk(ast.parse(block.text)))
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            _remove_written(call)
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        for name in used & self._given.keys():
            self._session.setdefault(name, self._given[name]())
        printed = io.StringIO()
        # Blank lines before it let a traceback name the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            # A model of few texts may never say one of the labels, and scikit-learn warns of that.
            warnings.simplefilter("ignore", UserWarning)
            exec(code, self._session)
        return printed.getvalue()

    def _run_sh(self, block: Block) -> str:
        printed, output = b"", b""
        for command in commands_of(block):
            if not command.piped:
                printed, output = printed + output, b""
            output = self._run_command(command, output)
            if command.into:
                Path(command.into).write_bytes(output)
                output = b""
        return (printed + output).decode()

    def _run_command(self, command: Command, given: bytes) -> bytes:
        program, *arguments = command.words
        if program == "dcnn" and arguments[:1] == ["serve"]:
            return self._serve(arguments[1:])
        if program == "dcnn":
            return _run_dcnn(command, given)
        if program == "curl":
            return self._ask(arguments)
        if program in PROGRAMS:
            return subprocess.run(
                command.words, input=given, capture_output=True, check=True
            ).stdout
        raise AssertionError(
            f"{command.place}: no test can run {program!r}; "
            "say why before the block: <!-- not run: the reason -->"
        )

    def _serve(self, arguments: list[str]) -> bytes:
        """Start it on a free port, in place of the one before it."""
        self.close()
        self._server = start_server(self._folder, *arguments, "--port", 0)
        return b""

    def _ask(self, arguments: list[str]) -> bytes:
        assert self._server is not None, "an example asks a server, and none has been started"
        address, *rest = arguments
        body = None
        if rest:
            option, value = rest
            assert option in ("-d", "--data-binary"), f"no test knows curl's {option}"
            body = Path(value[1:]).read_bytes() if value.startswith("@") else value.encode()
        url = address.replace(DOCUMENTED_ADDRESS, self._server.address)
        with urllib.request.urlopen(url, body, timeout=30) as answer:
            content: bytes = answer.read()
        return content


def _run_alone(block: Block) -> str:
    """Run Python code in a process that cannot import this package."""
    code = f"import sys; sys.modules['dcnn'] = None\n{block.text}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"{block.place}:\n{done.stderr}"
    return done.stdout


def _run_dcnn(command: Command, given: bytes) -> bytes:
    arguments = list(command.words[1:])
    with _variables(dict(command.variables)):
        for written in _written(arguments):
            _remove(written)
        done = CliRunner().invoke(app, [*arguments, *LESS.get(arguments[0], ())], input=given)
    if done.exit_code or done.exception:
        raise AssertionError(
            f"{command.place}: dcnn {' '.join(arguments)} ended with exit code {done.exit_code}: "
            f"{done.exception!r}\n{done.output}"
        ) from done.exception
    return done.stdout_bytes


def _written(arguments: list[str]) -> list[Path]:
    """What the command makes anew; one that continues a run, or replaces one, takes it as is."""
    if "--resume" in arguments or "--overwrite" in arguments or "--out" not in arguments:
        return []
    out = Path(arguments[arguments.index("--out") + 1])
    return [out, out.with_name(f"{out.name}.checkpoint"), out.with_name(f"{out.name}-tune")]


def _remove_written(call: ast.Call) -> None:
    """Make room for what ``model.save(PATH)`` or ``export(MODEL, PATH)`` writes."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in ("save", "export") and isinstance(call.args[-1], ast.Constant):
        _remove(Path(call.args[-1].value))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
