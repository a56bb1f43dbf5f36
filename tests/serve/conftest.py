"""Servers to ask: one in the test's own process, and real ones."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dcnn import artifact as model_folder
from dcnn.config import NBoWConfig
from dcnn.predictor import Predictor
from dcnn.serve.app import make_app
from dcnn.serve.detectors import index_detectors
from dcnn.serve.limits import Limits
from dcnn.serve.registry import Registry, ServedModel
from untrained import make_artifact

CORPUS = ("the plot is not dull", "the acting was very good", "the ending is bad , not good .")
ADDRESS = re.compile(r"on (http://\S+?)/ ")


@pytest.fixture(scope="session")
def registry() -> Registry:
    """A DCNN with detectors, another with labels that are numbers, and a model without a graph."""
    first = Predictor(make_artifact())
    return Registry(
        [
            ServedModel("first", first, index_detectors(first, CORPUS)),
            ServedModel("stars", Predictor(make_artifact(seed=1, classes=(1, 2, 3)))),
            ServedModel("bag", Predictor(make_artifact(NBoWConfig(dim=8)))),
        ]
    )


@pytest.fixture
def client_with(registry: Registry) -> Callable[..., TestClient]:
    """A client of a server with some of its limits, or its key, set otherwise."""

    def make(key: str = "", **limits: float) -> TestClient:
        return TestClient(make_app(registry, Limits(**limits), key=key))

    return make


@pytest.fixture
def client(client_with) -> TestClient:
    return client_with()


@dataclass
class Running:
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def end(self) -> tuple[int, str]:
        """Stop it in good order; its exit code and what it logged."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A folder with two model folders and a corpus."""
    place = tmp_path_factory.mktemp("served")
    model_folder.save(place / "first", make_artifact())
    model_folder.save(place / "bag", make_artifact(NBoWConfig(dim=8)))
    (place / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    return place


def start_server(folder: Path, *arguments: object) -> Running:
    process = subprocess.Popen(
        [sys.executable, "-m", "dcnn", "serve", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := ADDRESS.search(line):
            return Running(found[1], process)
    raise AssertionError(process.communicate()[1])


@pytest.fixture
def running(folder: Path) -> Iterator[Callable[..., Running]]:
    """Start real servers, and stop those that still run."""
    started: list[Running] = []

    def start(*arguments: object) -> Running:
        started.append(start_server(folder, *(arguments or ("first",)), "--port", 0))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()
