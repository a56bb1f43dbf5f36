"""A reader's folder, made once for all pages."""

import shutil
from pathlib import Path

import pytest

from documented import Block
from example_runner import ExampleRunner
from readers_folder import ALL, MODELS, Sentences, few_sentences, write_files

TRAINING = Block("the model of the examples", 1, "sh", "dcnn train reviews.csv --out my-model\n")
DEMO = Block("the model of the demo", 1, "sh", "dcnn demo --out demo-model\n")


@pytest.fixture(scope="session")
def sentences() -> Sentences:
    return few_sentences()


@pytest.fixture(scope="session")
def prepared(sentences: Sentences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder as it is before the first example, with a model under every name."""
    folder: Path = tmp_path_factory.mktemp("prepared")
    write_files(folder, sentences)
    runner = ExampleRunner(folder, {})
    runner.run(TRAINING)
    for name in MODELS[1:]:
        shutil.copytree(folder / MODELS[0], folder / name)
    if ALL:
        runner.run(DEMO)
    return folder
