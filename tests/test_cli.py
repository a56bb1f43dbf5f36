import subprocess
import sys
from pathlib import Path

import pytest
import typer

import dcnn as package
from dcnn import cli


def test_no_arguments_show_the_commands(dcnn):
    done = dcnn()
    assert "Usage" in done.out + done.err
    names = ("demo", "train", "predict", "evaluate", "explain", "detectors", "export")
    for command in (*names, "data", "experiment", "tune", "compare", "push", "pull"):
        assert command in done.out + done.err


@pytest.mark.parametrize(
    "command",
    [
        *(
            "demo",
            "train",
            "predict",
            "evaluate",
            "explain",
            "detectors",
            "export",
            "tune",
            "compare",
            "push",
            "pull",
            "data list",
            "data fetch",
            "data verify",
        ),
        *(f"experiment {name}" for name in ("sst2", "sst5", "trec", "twitter", "tables")),
    ],
)
def test_every_help_has_an_example(dcnn, command):
    done = dcnn(*command.split(), "--help")
    assert done.code == 0
    assert f"dcnn {command}" in done.out.split("Usage")[1].split("\n", 1)[1]


def test_every_help_text_of_an_option_is_shown_somewhere():
    root = typer.main.get_command(cli.app)
    context = typer.Context(root)
    commands = [root.get_command(context, name) for name in cli.COMMANDS]
    commands += [sub for one in commands for sub in getattr(one, "commands", {}).values()]
    shown = {parameter.help for command in commands for parameter in command.params}
    texts = Path(cli.__file__).with_name("options.txt").read_text("utf-8").splitlines()
    assert {line.split(": ", 1)[1] for line in texts if line} <= shown
    assert None not in shown


def test_the_version_is_printed(dcnn):
    assert dcnn("--version").out.strip() == package.__version__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trian",), "no such command 'trian'; did you mean 'train'? (see dcnn --help)"),
        (("train",), "missing argument 'TRAIN' (see dcnn train --help)"),
        (("train", "d.csv"), "missing option '--out' (see dcnn train --help)"),
        (("train", "d.csv", "--out"), "option '--out' requires an argument (see dcnn --help)"),
        (("export", "m", "--ot"), "no such option: --ot; did you mean --format, --out? (see"),
        (("predict", "m", "x", "--top", "0"), "--top 0: input should be greater than or equal to"),
        (
            ("cv", "x.csv", "--threads", "9" * 23),
            f"--threads {'9' * 23}: input should be less than",
        ),
        (("train", "d.csv", "--out", "m", "--epochs", "many"), "--epochs many: input should be a"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(dcnn, arguments, message):
    done = dcnn(*arguments)
    assert done.code == 2
    assert done.err.startswith(f"dcnn: {message}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("group", [(), ("data",), ("experiment",)])
def test_a_group_without_a_command_lists_its_commands(dcnn, group):
    assert "Commands:" in dcnn(*group).err


def test_importing_the_package_imports_nothing_heavy():
    script = (
        "import sys, dcnn, dcnn.cli; print([m for m in ('torch', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_public_names_load_when_used():
    assert set(package.__all__) <= set(dir(package))
    assert package.Predictor.__name__ == "Predictor"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense


@pytest.mark.parametrize(
    ("missing", "code", "what"),
    [
        ("torch", "train", "Training with model.kind=nbow"),
        ("torch", "gpu", "Training on a GPU"),
        ("torch", "tensorboard", "--tensorboard"),
        ("torch", "teacher", "A teacher"),
        ("sklearn", "classifier", "DCNNClassifier"),
    ],
)
def test_a_missing_extra_is_named_with_its_install_command(tmp_path, missing, code, what):
    (tmp_path / "d.csv").write_text("text,label\na,x\nb,y\nc,x\nd,y\n")
    hide = f"import sys; sys.modules[{missing!r}] = None\n"
    uses = {
        "train": "from dcnn.__main__ import main\n"
        "sys.argv = ['dcnn', 'train', 'd.csv', '--out', 'm', '--set', 'model.kind=nbow']; main()",
        "gpu": "from dcnn.__main__ import main\n"
        "sys.argv = ['dcnn', 'train', 'd.csv', '--out', 'm', '--device', 'cuda']; main()",
        "tensorboard": "from dcnn.__main__ import main\n"
        "sys.argv = 'dcnn train d.csv --out m --tensorboard logs'.split(); main()",
        # scikit-learn cannot be imported with torch hidden like this.
        "teacher": "del sys.modules['torch']\nimport dcnn\nclassifier = dcnn.DCNNClassifier()\n"
        f"{hide}try: classifier.fit(['a', 'b'], [0, 1], teacher=len)\n"
        "except dcnn.DcnnError as error: sys.exit(f'{error}')",
        "classifier": "import dcnn\ntry: dcnn.DCNNClassifier\n"
        "except dcnn.DcnnError as error: sys.exit(f'{error}')",
    }
    done = subprocess.run(
        [sys.executable, "-c", hide + uses[code]], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode != 0
    extra = "tensorboard" if code == "tensorboard" else "train"
    assert f"{what} needs the extra '{extra}': pip install 'dcnn[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_crash(tmp_path):
    from dcnn import artifact as model_folder
    from untrained import make_artifact

    model_folder.save(tmp_path / "model", make_artifact())
    (tmp_path / "d.txt").write_text("good\n" * 50_000)
    command = f"{sys.executable} -m dcnn predict model --input d.txt | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), (">/dev/full", 1)])
def test_a_command_that_imported_torch_ends_well_without_its_streams(tmp_path, closed, code):
    program = (
        "import sys, torch\n"
        "from dcnn import __main__ as entry\n"
        "entry._run_parsed = lambda: print('done')\n"
        "entry.main()\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = f"{sys.executable} program.py data {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("No space left" in done.stderr) == (code == 1)


def test_threads_end_before_the_process_does():
    program = (
        "import threading, time, torch\n"
        "from dcnn import __main__ as entry\n"
        "def late(): time.sleep(0.3); print('late', flush=True)\n"
        "entry._run_parsed = lambda: threading.Thread(target=late).start()\n"
        "entry.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "late\n")


def test_commands_run_without_docstrings():
    command = [sys.executable, "-OO", "-m", "dcnn", "train", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Examples:" in done.stdout


@pytest.mark.parametrize("torch", [False, True])
def test_torch_is_not_taken_apart_at_the_end_but_exit_functions_are_called(torch):
    program = (
        "import atexit, sys\n"
        "class Last:\n"
        "    def __del__(self): print('taken apart')\n"
        "last = Last()\n"
        "atexit.register(print, 'called')\n"
        f"if {torch}: sys.modules['torch'] = sys\n"
        "sys.argv = ['dcnn', '--version']\n"
        "from dcnn.__main__ import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert "called" in done.stdout
    assert ("taken apart" in done.stdout) != torch
