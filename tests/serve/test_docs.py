"""The examples of docs/server.md are answered as it says."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dcnn.predictor import Predictor
from dcnn.serve.app import make_app
from dcnn.serve.detectors import index_detectors
from dcnn.serve.limits import Limits
from dcnn.serve.registry import Registry, ServedModel
from untrained import make_artifact

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
# A command, and the answer below it where there is one.
EXAMPLES = [
    (command, answer)
    for block, answer in re.findall(r"```sh\n(.*?)```\n(?:\n```json\n(.*?)```)?", TEXT, re.DOTALL)
    for command in block.splitlines()
    if command.startswith("curl ")
]


@pytest.fixture
def documented():
    from fastapi.testclient import TestClient

    predictor = Predictor(make_artifact(classes=("positive", "negative")))
    index = index_detectors(predictor, ["the plot is dull", "the acting was good"])
    return TestClient(make_app(Registry([ServedModel("demo-model", predictor, index)])))


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize(("command", "expected"), EXAMPLES, ids=[c for c, _ in EXAMPLES])
def test_an_example_is_answered_as_it_says(documented, command, expected):
    _, address, *rest = shlex.split(command)
    url = urlsplit(address)
    path = f"{url.path}?{url.query}"
    if rest[:1] == ["-d"]:
        answer = documented.post(path, content=rest[1])
    elif rest:
        answer = documented.post(path, content=b"text,label\na good plot,x\n")
    else:
        answer = documented.get(path)
    assert answer.status_code == 200, answer.text
    if expected:
        found, told = shape(answer.json()), shape(json.loads(expected))
        assert json.dumps(found, sort_keys=True) == json.dumps(told, sort_keys=True)


def test_there_are_examples_of_every_endpoint(documented):
    paths = set(documented.get("/openapi.json").json()["paths"])
    assert paths == {urlsplit(shlex.split(command)[1]).path for command, _ in EXAMPLES}


def test_the_limits_are_those_of_the_server():
    defaults = Limits()
    for name, limit in [
        ("bytes of a body", defaults.body),
        ("bytes of a file", defaults.file),
        ("texts of a file", defaults.rows),
        ("texts of a request", defaults.texts),
        ("texts explained at once", defaults.explained),
        ("words explained at once, all texts together", defaults.explained_words),
        ("characters of a text", defaults.characters),
        ("requests that a worker holds", defaults.in_flight),
        ("explanations and large batches that wait in a worker", defaults.waiting),
        ("files that a worker holds", defaults.uploads),
    ]:
        assert f"| {name} | {limit:,} |" in TEXT


def test_the_options_default_to_the_limits(dcnn):
    told = " ".join(dcnn("serve", "--help").out.split())
    for option, limit in [
        ("--max-body", Limits.body),
        ("--max-file", Limits.file),
        ("--max-rows", Limits.rows),
        ("--max-texts", Limits.texts),
        ("--max-length", Limits.characters),
        ("--max-in-flight", Limits.in_flight),
    ]:
        assert re.search(rf"{option} .*?\[default: {limit};", told), option
