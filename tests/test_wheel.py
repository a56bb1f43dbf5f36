"""What `make wheel` has built, installed in environments that have nothing else."""

import json
import os
import platform
import subprocess
import venv
from pathlib import Path

import pytest

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.ops import native
from dcnn.predictor import Predictor
from untrained import make_artifact

DIST = Path(__file__).parent.parent / "dist"
pytestmark = pytest.mark.wheel
TEXT = "the plot is not dull"


def run(*command, **environment):
    # Neither the checkout nor the settings of the one who runs the tests.
    hidden = ("PYTHONPATH", "DCNN_BACKEND", "CXX", "CXXFLAGS")
    variables = {k: v for k, v in os.environ.items() if k not in hidden} | environment
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=variables, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def clean(tmp_path):
    """Install a distribution into a new environment; returns a function that runs its programs."""
    venv.create(tmp_path / "venv", with_pip=True)
    model_folder.save(tmp_path / "model", make_artifact())

    def install(distribution, **environment):
        pip = [tmp_path / "venv/bin/python", "-m", "pip"]
        run(*pip, "install", "--no-cache-dir", "--quiet", distribution, **environment)

        def program(name, *arguments, **variables):
            return run(tmp_path / "venv/bin" / name, *arguments, **variables)

        return program

    return install


def check_prediction(program, folder, backend):
    """That the installed package predicts with a backend what this one predicts."""
    label, probability, _ = program(
        "dcnn", "predict", folder / "model", TEXT, DCNN_BACKEND=backend
    ).split("\t")
    (expected,) = Predictor.load(folder / "model").predict([TEXT])
    assert label == expected.label
    assert float(probability) == pytest.approx(expected.probability, abs=1e-5)


def only(pattern):
    (found,) = DIST.glob(pattern)
    return found


def test_the_wheel_runs_on_many_systems_and_has_the_native_library_inside(clean, tmp_path):
    wheel = only("*.whl")
    assert wheel.name.endswith(f"-py3-none-manylinux_2_24_{platform.machine()}.whl")
    program = clean(wheel)
    installed = program("python", "-c", "import dcnn; print(dcnn.__file__)")
    assert str(tmp_path) in installed
    check_prediction(program, tmp_path, "native")
    program("dcnn", "export", tmp_path / "model", "--out", tmp_path / "m.html")
    assert (tmp_path / "m.html").stat().st_size > 20_000
    rows = [f"{word} {place},{word}\n" for word in ("good", "bad") for place in range(30)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(rows))
    program("dcnn", "train", tmp_path / "rows.csv", "--out", tmp_path / "trained")
    label, *_ = program("dcnn", "predict", tmp_path / "trained", "good 3").split("\t")
    assert label == "good"


def test_the_bill_of_materials_has_the_package_and_what_it_needs():
    content = only("*.cdx.json").read_text()
    bill = json.loads(content)
    found = {one["name"]: one["version"] for one in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX"
    assert found["dcnn"] == __version__
    assert {"numpy", "rich", "safetensors", "typer"} <= found.keys()
    assert not {"pip", "torch"} & found.keys()
    assert str(DIST.parent) not in content


@pytest.mark.parametrize("compiler", ["c++", "no-such-compiler"])
def test_the_source_distribution_builds_with_and_without_a_compiler(clean, tmp_path, compiler):
    program = clean(only("*.tar.gz"), CXX=compiler)
    name = native.library_path().name
    library = list((tmp_path / "venv").rglob(name))
    assert len(library) == (compiler == "c++")
    check_prediction(program, tmp_path, "native" if library else "reference")
