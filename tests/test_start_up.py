"""What ``dcnn predict MODEL TEXT`` imports: all that makes it start in a moment, and no more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dcnn import artifact as model_folder
from untrained import make_artifact

# All that a prediction needs: libraries, with what they import, and modules of the package.
LIBRARIES = (
    "array, ctypes, dataclasses, gc, json, numpy.typing, pathlib, runpy, safetensors, "
    "threading, unicodedata, zlib"
)
MODULES = {
    *("dcnn", "dcnn.__main__", "dcnn.artifact", "dcnn.config", "dcnn.errors", "dcnn.files"),
    *("dcnn.batch_predict", "dcnn.batch_predict.lines", "dcnn.predictor"),
    *("dcnn.ops", "dcnn.ops.native", "dcnn.ops.reference", "dcnn.ops.select"),
    *("dcnn.text", "dcnn.text.encoder", "dcnn.text.native", "dcnn.text.tokenizer"),
    "dcnn.text.vocabulary",
}
LIST_MODULES = "print(*sys.modules, file=sys.stderr, sep='\\n')"
MAIN = "from dcnn.__main__ import main; main()"


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    return "model"


@pytest.fixture
def run_script(tmp_path):
    """Run a script in a process of its own; its exit code, output and errors."""

    def run(script: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
        inherited = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=inherited | environment,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_prediction_imports_only_what_it_needs(run_script, model):
    script = f"import os, sys; os._exit = lambda code: ({LIST_MODULES}, sys.exit(code)); {MAIN}"
    code, out, imported = run_script(script, "predict", model, "not dull")
    assert (code, out[-9:]) == (0, "not dull\n")
    _, _, libraries = run_script(f"import sys, {LIBRARIES}; {LIST_MODULES}")
    assert set(imported.splitlines()) - set(libraries.splitlines()) == MODULES


def test_a_prediction_ends_without_freeing_what_it_holds(run_script, model):
    # That would take a sixth of the time of a process that ends anyway.
    script = f"import atexit; atexit.register(print, 'freed'); {MAIN}"
    assert "freed" not in run_script(script, "predict", model, "good")[1]
    assert "freed" in run_script(script, "predict", model, "good", "--top", "1")[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_an_error(run_script, model):
    script = f"import sys; sys.stdout = open('/dev/full', 'w'); {MAIN}"
    code, _, err = run_script(script, "predict", model, "good")
    assert (code, err.splitlines()[0]) == (1, "dcnn: standard output: No space left on device")


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


def test_one_thread_of_blas_unless_set_otherwise(run_script, model):
    show = "print(os.environ['OPENBLAS_NUM_THREADS'])"
    script = f"import os, sys; os._exit = lambda code: ({show}, sys.exit(code)); {MAIN}"

    def threads(**environment: str) -> str:
        return run_script(script, "predict", model, "good", **environment)[1].splitlines()[-1]

    assert threads() == "1"
    assert threads(OPENBLAS_NUM_THREADS="2") == "2"


def test_a_prediction_that_is_interrupted_ends_without_a_traceback(run_script, model):
    script = (
        "from dcnn.predictor import Predictor\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        f"Predictor.load = interrupted; {MAIN}"
    )
    assert run_script(script, "predict", model, "good") == (130, "", "")
