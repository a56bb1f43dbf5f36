"""What ``dcnn predict MODEL TEXT`` imports: all that makes it start in a moment, and no more."""

import json
import os
import subprocess
import sys

import pytest

from dcnn import artifact as model_folder
from untrained import make_artifact

# Each takes longer to import than a prediction takes, and none has a part in it.
NEEDLESS = (
    *("torch", "sklearn", "scipy", "pandas", "matplotlib", "typer", "rich", "pydantic", "click"),
    *("fastapi", "uvicorn", "starlette", "dcnn.serve"),
    *("pyarrow", "polars", "dcnn.data.columns"),
    *("csv", "multiprocessing", "importlib.metadata", "http", "asyncio", "unittest"),
    *("dcnn.cli", "dcnn.data.readers", "dcnn.text.vectors"),
    *("dcnn.training", "dcnn.experiments", "dcnn.metrics"),
)
LIST_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from dcnn.__main__ import main
main()
"""


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    return "model"


def test_a_prediction_imports_only_what_it_needs(tmp_path, model):
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, "predict", model, "not dull"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.endswith("not dull\n")
    imported = set(json.loads(done.stderr))
    assert {"numpy", "dcnn.predictor"} <= imported
    assert imported.isdisjoint(NEEDLESS), sorted(imported.intersection(NEEDLESS))


def test_the_fast_path_predicts_as_the_parsed_command_does(dcnn, model):
    texts = ("not dull", "", "the plot is bad")
    fast = dcnn("predict", model, *texts)
    assert fast == dcnn("predict", "--top", 1, model, *texts)
    assert fast.code == 0
    assert len(fast.out.splitlines()) == 3


@pytest.mark.parametrize(("text", "code"), [("--help", 0), ("-h", 0), ("--nonsense", 2), ("-x", 2)])
def test_whatever_looks_like_an_option_goes_to_the_parser(dcnn, model, text, code):
    done = dcnn("predict", model, "good", text)
    assert done.code == code
    assert "predict" in done.out + done.err


def test_a_text_that_begins_with_a_hyphen_follows_two_of_them(dcnn, model):
    assert dcnn("predict", model, "--", "-x").out.endswith("\t-x\n")


def test_one_thread_of_blas_unless_set_otherwise(tmp_path, model):
    script = (
        "import os, atexit\n"
        "atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS']))\n"
        "from dcnn.__main__ import main\nmain()"
    )

    def threads(**environment: str) -> str:
        inherited = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        done = subprocess.run(
            [sys.executable, "-c", script, "predict", model, "good"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=inherited | environment,
            check=True,
        )
        return done.stdout.splitlines()[-1]

    assert threads() == "1"
    assert threads(OPENBLAS_NUM_THREADS="2") == "2"


def test_a_prediction_that_is_interrupted_ends_without_a_traceback(tmp_path, model):
    script = (
        "from dcnn.predictor import Predictor\n"
        "from dcnn.__main__ import main\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        "Predictor.load = interrupted\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "predict", model, "good"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")
