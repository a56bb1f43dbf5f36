"""An example that does not work is a failure, whatever way it fails in."""

import pytest

from documented import Block
from example_runner import ExampleRunner


def sh(text: str) -> Block:
    return Block("page.md", 7, "sh", text)


@pytest.fixture
def runner(tmp_path):
    return ExampleRunner(tmp_path, {"texts": lambda: ["a text"]})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dcnn predict no-model text", "page.md:7: dcnn predict no-model text .* exit code"),
        ("dcnn predict --no-such-option", "No such option"),
        ("dcnn trian", "trian"),
        ("make demo", "page.md:7: no test can run 'make'; say why"),
        ("curl http://127.0.0.1:8000/healthz", "none has been started"),
    ],
)
def test_a_command_that_fails_fails_the_test(runner, line, said):
    with pytest.raises(AssertionError, match=said):
        runner.run(sh(line))


def test_a_later_command_does_not_hide_an_earlier_one(runner):
    with pytest.raises(AssertionError, match="no-model"):
        runner.run(sh("dcnn predict no-model text\necho done\n"))


def test_python_fails_at_the_line_of_the_page(runner):
    with pytest.raises(NameError) as caught:
        runner.run(Block("page.md", 7, "python", "x = 1\nundefined_name\n"))
    assert caught.traceback[-1].lineno == 7  # counted from 0: line 8 of the page


def test_output_goes_down_a_pipe_and_into_a_file(runner, tmp_path):
    assert runner.run(sh("echo one | cat > out.txt\ncat out.txt")) == "one\n"
    assert (tmp_path / "out.txt").read_text() == "one\n"


def test_blocks_of_a_page_share_a_session_with_the_given_names(runner):
    runner.run(Block("page.md", 1, "python", "first = texts[0]\n"))
    assert runner.run(Block("page.md", 5, "python", "print(first)\n")) == "a text\n"


def test_variables_of_a_command_do_not_stay(runner, monkeypatch):
    import os

    monkeypatch.delenv("DCNN_DATA", raising=False)
    runner.run(sh("DCNN_DATA=nowhere dcnn data list"))
    assert "DCNN_DATA" not in os.environ


def test_an_example_that_stands_alone_cannot_import_the_package(runner):
    def block(text):
        return Block("page.md", 1, "python", text, mark="alone", reason="it ships")

    assert runner.run(block("import json; print(json.dumps(1))\n")) == "1\n"
    with pytest.raises(AssertionError, match=r"import of dcnn halted"):
        runner.run(block("from dcnn import Predictor\n"))
