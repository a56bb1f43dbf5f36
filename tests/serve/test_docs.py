"""Examples and limits in docs/server.md are those of the server."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.app import make_app
from dcnn.serve.models import ServedModel, index_detectors
from untrained import make_artifact

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
# A command, and the answer below it where there is one.
EXAMPLES = [
    (command, answer)
    for block, answer in re.findall(r"```sh\n(.*?)```\n(?:\n```json\n(.*?)```)?", TEXT, re.DOTALL)
    for command in block.splitlines()
    if command.startswith("curl ")
]


@pytest.fixture(scope="module")
def documented():
    predictor = Predictor(make_artifact(classes=("positive", "negative")))
    index = index_detectors(predictor, ["the plot is dull", "the acting was good"])
    return TestClient(make_app([ServedModel("demo-model", predictor, index)]))


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize(("command", "expected"), EXAMPLES, ids=[c for c, _ in EXAMPLES])
def test_an_example_gives_the_documented_response(documented, command, expected):
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
        assert shape(answer.json()) == shape(json.loads(expected))


def test_every_endpoint_has_an_example(documented):
    paths = set(documented.get("/openapi.json").json()["paths"])
    assert paths == {urlsplit(shlex.split(command)[1]).path for command, _ in EXAMPLES}


def test_the_documented_limits_are_the_defaults():
    defaults = Limits()
    for name, limit in [
        ("bytes in a JSON body", defaults.body_bytes),
        ("bytes in a file", defaults.file_bytes),
        ("texts in a file", defaults.file_rows),
        ("texts per request", defaults.texts),
        ("texts to explain per request", defaults.explain_texts),
        ("words to explain per request, all texts together", defaults.explain_words),
        ("characters in a text", defaults.characters),
        ("requests in flight per worker", defaults.in_flight),
        ("explanations and large batches queued per worker", defaults.queue),
        ("files in memory per worker", defaults.uploads),
    ]:
        assert f"| {name} | {limit:,} |" in TEXT


def test_the_command_line_defaults_are_the_limits(dcnn):
    text = " ".join(dcnn("serve", "--help").out.split())
    for option, limit in [
        ("--max-body", Limits.body_bytes),
        ("--max-file", Limits.file_bytes),
        ("--max-rows", Limits.file_rows),
        ("--max-texts", Limits.texts),
        ("--max-length", Limits.characters),
        ("--max-in-flight", Limits.in_flight),
    ]:
        assert re.search(rf"{option} .*?\[default: {limit};", text), option
