"""Every example of the documentation is run, or says why it is not.

`make test` runs all but the slow ones. `make test-docs` (DCNN_ALL_EXAMPLES=1) runs these too,
with the model that `dcnn demo` really makes, and compares what that prints with what the page
shows.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from documented import EXAMPLES, OTHERS, PAGES, Block, all_blocks, examples_of, name_of
from example_runner import ExampleRunner
from readers_folder import ALL, Sentences, names_in_python


def is_run(block: Block) -> bool:
    return block.mark in ("", "alone") or (ALL and block.mark == "slow")


@pytest.fixture
def runner(prepared: Path, sentences: Sentences, tmp_path: Path) -> Iterator[ExampleRunner]:
    shutil.copytree(prepared, tmp_path / "reader", symlinks=True)
    started = ExampleRunner(tmp_path / "reader", names_in_python(sentences))
    yield started
    started.close()


@pytest.mark.parametrize(
    "page", [name for name in map(name_of, PAGES) if any(map(is_run, examples_of(name)))]
)
def test_the_examples_of_a_page_run_from_top_to_bottom(runner: ExampleRunner, page: str):
    for block in filter(is_run, examples_of(page)):
        printed = runner.run(block)
        if ALL and block.output is not None and "demo-model" in block.text:
            assert _words(printed) == _words(block.output), (
                f"{block.place} prints something else than the page shows:\n{printed}"
            )


def _words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.place)
def test_a_block_says_what_it_is(block: Block):
    assert block.language in (*EXAMPLES, *OTHERS), (
        f"{block.place} is marked {block.language!r}: write sh or python, so that it is run"
    )
    if block.language == "":
        assert not re.match(r"(\$ *)?(dcnn|pip|python|make|import|from) ", block.text), (
            f"{block.place} looks like an example and is not marked as one: write sh or python"
        )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_mark_stands_before_a_block(page: Path):
    """One that has lost its block would look as if it excused something."""
    marks = re.findall(r"<!-- *(?:not run|slow|alone)\b", page.read_text("utf-8"))
    excused = [block for block in examples_of(name_of(page)) if block.mark]
    assert len(marks) == len(excused)
