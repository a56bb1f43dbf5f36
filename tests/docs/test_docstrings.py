"""The examples in docstrings, which the reference of the site shows, are run too."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

from documented import ROOT, Block, name_of
from example_runner import ExampleRunner
from readers_folder import Sentences, names_in_python

SOURCES = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text()]


def block_of(path: Path) -> Block:
    """All examples of a module as one; where a docstring tells a value, it is compared."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for example in doctest.DocTestParser().get_examples(ast.get_docstring(node) or ""):
                source, told = example.source, example.want.strip()
                lines.append(f"assert repr({source.strip()}) == {told!r}\n" if told else source)
    return Block(name_of(path), 1, "python", "".join(lines))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_the_examples_of_a_module_run(
    prepared: Path, sentences: Sentences, tmp_path: Path, path: Path
):
    (tmp_path / "my-model").symlink_to(prepared / "my-model")
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    module = importlib.import_module(name.removesuffix(".__init__"))
    names = names_in_python(sentences) | {
        name: (lambda value=value: value)
        for source in (importlib.import_module("dcnn.predictor"), module)
        for name, value in vars(source).items()
    }
    ExampleRunner(tmp_path, names).run(block_of(path))
