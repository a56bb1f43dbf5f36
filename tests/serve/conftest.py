"""Servers under test: in the test's own process, and in processes of their own."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dcnn import artifact as model_folder
from dcnn.config import NBoWConfig
from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.app import make_app
from dcnn.serve.models import ServedModel, index_detectors
from serve_process import Running, start_server
from untrained import VOCABULARY_TEXT, make_artifact

# Large enough for a word to be distinctive among the n-grams that activate a detector.
_WORDS = VOCABULARY_TEXT.split()
EXAMPLES = (("the plot is good .", "pos"), ("the ending was bad , <b>not</b> dull", "neg"))
CORPUS = tuple(" ".join(random.Random(n).choices(_WORDS, k=7)) for n in range(300))


@pytest.fixture(scope="session")
def registry() -> dict[str, ServedModel]:
    """A DCNN with detectors, one with numbers as labels, and a model without a graph."""
    first = Predictor(make_artifact())
    models = [
        ServedModel("first", first, index_detectors(first, CORPUS)),
        ServedModel("stars", Predictor(make_artifact(seed=1, classes=(1, 2, 3)))),
        ServedModel("bag", Predictor(make_artifact(NBoWConfig(dim=8)))),
    ]
    return {model.name: model for model in models}


@pytest.fixture(scope="session")
def client_with(registry: dict[str, ServedModel]) -> Callable[..., TestClient]:
    """Make a client of a server with other limits or a key; the same one for the same."""

    @cache  # an app takes half a second to make
    def make(key: str = "", **limits: float) -> TestClient:
        return TestClient(make_app([*registry.values()], Limits(**limits), key=key))

    return make


@pytest.fixture
def client(client_with) -> TestClient:
    return client_with()


@pytest.fixture(scope="session")
def multi_label() -> Predictor:
    """A multi-label model."""
    return Predictor(make_artifact(classes=("dull", "good", "plot"), thresholds=(0.3, 0.5, 0.7)))


@pytest.fixture(scope="session")
def multi_label_client(multi_label) -> TestClient:
    return TestClient(make_app([ServedModel("multi", multi_label)]))


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A folder with two model folders and a corpus."""
    place = tmp_path_factory.mktemp("served")
    first = replace(make_artifact(), examples=EXAMPLES)
    model_folder.save(place / "first", first)
    model_folder.save(place / "bag", make_artifact(NBoWConfig(dim=8)))
    (place / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    return place


@pytest.fixture
def running(folder: Path) -> Iterator[Callable[..., Running]]:
    """Start servers in processes of their own, and stop those that still run at the end."""
    started: list[Running] = []

    def start(*arguments: object) -> Running:
        started.append(start_server(folder, *(arguments or ("first",)), "--port", 0))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()
