"""``dcnn serve``: mistakes that are reported before anything is served."""

import builtins
import socket

import pytest

from dcnn import artifact as model_folder
from dcnn.cli.serve import serve
from dcnn.errors import MissingExtraError, UserError
from dcnn.serve.models import named_folders
from untrained import make_artifact


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    return "model"


def test_a_missing_folder_is_reported(dcnn):
    done = dcnn("serve", "nowhere", "--port", 0)
    assert (done.code, done.err) == (2, "dcnn: nowhere: no such model folder\n")


def test_a_port_in_use_is_reported(dcnn, model):
    with socket.socket() as taken:
        # As the workers of another server do.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for workers in (1, 2):
            done = dcnn("serve", model, "--port", port, "--workers", workers)
            assert done.code == 2
            assert done.err.startswith(f"dcnn: cannot listen on 127.0.0.1 port {port} (")
            assert done.err.endswith("choose another with --port or --host\n")


def test_an_address_of_another_machine_is_reported(dcnn, model):
    done = dcnn("serve", model, "--port", 0, "--host", "192.0.2.1")
    assert done.code == 2
    assert "cannot listen on 192.0.2.1 port 0" in done.err


def test_a_missing_corpus_is_reported(dcnn, model):
    done = dcnn("serve", model, "--port", 0, "--corpus", "nothing.csv")
    assert done.code == 2
    assert done.err.endswith("dcnn: nothing.csv: no such file\n")


def test_the_help_has_examples(dcnn):
    done = dcnn("serve", "--help")
    assert done.code == 0
    assert "dcnn serve my-model --corpus reviews.csv" in done.out


def test_models_are_named_by_folder_or_by_hand(tmp_path, monkeypatch):
    (tmp_path / "lr=0.1").mkdir()
    monkeypatch.chdir(tmp_path)
    found = named_folders(["models/reviews/", "trec=models/9", "lr=0.1"])
    assert list(found) == ["reviews", "trec", "lr=0.1"]
    assert str(found["trec"]) == "models/9"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a/model", "b/model"], "two models are named 'model'"),
        (["=folder"], "gives the model no name"),
        (["a\nb=folder"], "gives the model no name"),
    ],
)
def test_unusable_names_are_reported(arguments, message):
    with pytest.raises(UserError, match=message):
        named_folders(arguments)


def test_a_missing_extra_is_reported_with_its_install_command(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "uvicorn":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'dcnn\[serve\]'"):
        serve(["model"])
