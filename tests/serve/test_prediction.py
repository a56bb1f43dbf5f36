"""Predictions of texts and files: the same as those of ``dcnn predict --json``."""

import json

import pytest
from pydantic import TypeAdapter

from dcnn.batch_predict.lines import OutputFormat
from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.app import INLINE_BYTES, Endpoints
from dcnn.serve.middleware import Metrics
from dcnn.serve.models import ServedModel
from dcnn.serve.schemas import PredictResponse
from untrained import make_artifact

TEXTS = ["the plot is not dull", "", "very good acting", "words that nobody knows", "bad , bad ."]


def command_predictions(predictor: Predictor, texts: list[str], options: dict) -> list[dict]:
    """The objects of ``dcnn predict --json``."""
    below = options.get("abstain_below")
    lines = OutputFormat(as_json=True, top=options.get("top", 1), abstain_below=below)
    expected = [json.loads(lines.line(one)) for one in predictor.predict(texts, below or 0.0)]
    for one in expected:
        del one["text"]
        if "top" not in options:  # the command's default, which here is not expected
            del one["top"]
    return expected


def all_options(predictor: Predictor) -> list[dict]:
    """Every number of labels, one too many, and a bound just at the probability of each text."""
    best = [one.probability for one in predictor.predict(TEXTS)]
    tops = [{}, *({"top": top} for top in range(1, len(predictor.classes) + 2))]
    bounds = [{}, *({"abstain_below": below} for below in (0, *best, 1))]
    return [top | bound for top in tops for bound in bounds]


@pytest.mark.parametrize("model", ["first", "stars"])
def test_a_prediction_equals_that_of_the_command(client, registry, model):
    predictor = registry.get(model).predictor
    for options in all_options(predictor):
        answer = client.post("/v1/predict", json={"texts": TEXTS, "model": model, **options}).json()
        assert answer["predictions"] == command_predictions(predictor, TEXTS, options)
        TypeAdapter(PredictResponse).validate_python(answer)


@pytest.mark.parametrize(
    ("texts", "labels", "inline"),
    [(64, 2, True), (65, 2, False), (6, 640, True), (7, 640, False), (1, 6400, False)],
)
def test_a_body_of_many_short_texts_or_labels_leaves_the_event_loop(texts, labels, inline):
    # A body of 4 KB can hold a thousand one-letter texts; every label has its probability.
    model = Predictor(make_artifact(classes=tuple(map(str, range(labels)))))
    served = [ServedModel("m", model)]
    endpoints = Endpoints(served, Limits(), Metrics(served), requires_key=False)
    body = json.dumps({"texts": ["a"] * texts}).encode()
    assert len(body) < INLINE_BYTES
    assert (endpoints.predict_inline(body) is not None) == inline


def test_files_and_large_batches_give_the_same_predictions(client, registry):
    texts = [text or "." for text in TEXTS] * 100
    assert sum(map(len, texts)) > INLINE_BYTES
    options = {"top": 2, "abstain_below": 0.7}
    expected = command_predictions(registry.get("first").predictor, texts, options)
    assert {one["abstained"] for one in expected} == {False, True}
    answer = client.post("/v1/predict", json={"texts": texts, **options})
    assert answer.json()["predictions"] == expected
    lines = client.post(
        "/v1/predict-file", params={"name": "a.txt", **options}, content="\n".join(texts)
    ).text.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"line": number, "text": text, **expected}
        for number, (text, expected) in enumerate(zip(texts, expected, strict=True), 1)
    ]


def test_the_default_response_is_stable_byte_by_byte(client, registry):
    (one,) = registry.get("first").predictor.predict([TEXTS[0]])
    (best, p), (other, q) = one.ranked
    expected = (
        f'{{"model":"first","predictions":[{{"label":"{best}","probability":{p},'
        f'"probabilities":{{"{best}":{p},"{other}":{q}}}}}]}}'
    )
    assert client.post("/v1/predict", json={"text": TEXTS[0]}).text == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('"top": 0', "top: input should be greater than or equal to 1"),
        ('"top": -1', "top: input should be greater than or equal to 1"),
        ('"top": "2"', "top: input should be a valid integer"),
        ('"top": 1.5', "top: input should be a valid integer"),
        ('"top": true', "top: input should be a valid integer"),
        ('"top": null', "top: input should be a valid integer"),
        ('"abstain_below": -0.1', "abstain_below: input should be greater than or equal to 0"),
        ('"abstain_below": 1.1', "abstain_below: input should be less than or equal to 1"),
        ('"abstain_below": "half"', "abstain_below: input should be a valid number"),
        ('"abstain_below": NaN', "abstain_below: input should be a finite number"),
        ('"abstain_below": null', "abstain_below: input should be a valid number"),
    ],
)
def test_invalid_options_are_an_error(client, options, expected):
    answer = client.post("/v1/predict", content=f'{{"text": "good", {options}}}')
    assert (answer.status_code, answer.json()) == (422, {"error": expected})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("top=0", "top: input should be greater than or equal to 1"),
        ("top=two", "top: input should be a valid integer, unable to parse string as an integer"),
        ("abstain_below=2", "abstain_below: input should be less than or equal to 1"),
        ("abstain_below=nan", "abstain_below: input should be a finite number"),
    ],
)
def test_invalid_options_of_a_file_are_an_error(client, options, expected):
    answer = client.post(f"/v1/predict-file?name=a.txt&{options}", content=b"good\n")
    assert (answer.status_code, answer.json()) == (422, {"error": expected})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"top": 2},
            "top=2 is for single-label models; this model is multi-label and gives every label "
            "that reaches its threshold; the field probabilities has them all",
        ),
        (
            {"abstain_below": 0.5},
            "abstaining below 0.5 is for models that give one label; this one gives every label "
            "from its threshold on, and may give none",
        ),
        (
            {"abstain_below": 0},
            "abstaining below 0 is for models that give one label; this one gives every label "
            "from its threshold on, and may give none",
        ),
    ],
)
def test_a_multi_label_model_neither_ranks_nor_abstains(multi_label_client, options, expected):
    answer = multi_label_client.post("/v1/predict", json={"text": "good", **options})
    assert (answer.status_code, answer.json()) == (422, {"error": expected})
    answer = multi_label_client.post(
        "/v1/predict-file", params={"name": "a.txt", **options}, content=b"good\n"
    )
    assert (answer.status_code, answer.json()) == (422, {"error": expected})


def test_a_multi_label_model_gives_its_most_probable_label_with_top_1(
    multi_label_client, multi_label
):
    answer = multi_label_client.post("/v1/predict", json={"text": "good", "top": 1}).json()
    (one,) = multi_label.predict(["good"])
    (expected,) = answer["predictions"]
    assert expected["top"] == [{"label": one.label, "probability": one.probability}]
    assert expected["labels"] == list(one.labels)


def test_a_file_gives_one_line_per_row(client, registry):
    content = f'id,text,label\n1,"{TEXTS[0]}",x\n2,{TEXTS[2]},y\n'.encode()
    answer = client.post("/v1/predict-file?name=texts.csv", content=content)
    assert answer.headers["content-type"] == "application/x-ndjson"
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == [(2, TEXTS[0]), (3, TEXTS[2])]
    expected = registry.get("first").predictor.predict([TEXTS[0], TEXTS[2]])
    assert [row["probability"] for row in rows] == [one.probability for one in expected]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", b"label\ttext\nx\tgood\n"),
        ("a.jsonl", b'{"text": "good", "label": 1}\n'),
        ("a.txt", b"good\n"),
        ("a.csv", b"\xef\xbb\xbftext\r\ngood\r\n"),
    ],
)
def test_every_file_format_is_read(client, name, content):
    (row,) = client.post(f"/v1/predict-file?name={name}", content=content).text.splitlines()
    assert json.loads(row)["text"] == "good"


def test_an_error_in_a_file_names_the_query_parameter(client):
    answer = client.post("/v1/predict-file?name=../../x.csv", content=b"a,b,c\n1,2,3\n")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("x.csv: cannot guess which column")
    assert answer.json()["error"].endswith("choose with text_column")


def test_a_file_has_its_own_limits(client_with):
    client = client_with(body_bytes=10, file_bytes=100, file_rows=2, characters=20)
    ask = "/v1/predict-file?name=a.txt"
    assert client.post(ask, content=b"good\n" + b"x" * 20).status_code == 200
    assert client.post(ask, content=b"x" * 101).status_code == 413
    for content, expected in [
        (b"a\nb\nc\n", "a.txt has more than 2 texts; split the file"),
        (b"a\n" + b"x" * 21, "a.txt, line 2: the text has 21 characters, more than 20; shorten it"),
        (b"", "a.txt is empty; give a file with at least one row"),
        (b"\xff\n", "a.txt, line 1, character 1: the byte 0xff is not valid utf-8; name the "
         "encoding that the file was written in, for instance encoding=latin-1"),
    ]:  # fmt: skip
        answer = client.post(ask, content=content)
        assert (answer.status_code, answer.json()["error"]) == (422, expected)


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("name=a.csv.gz", "compressed files are not accepted"),
        ("name=a.pdf", "'.pdf' names no format"),
        ("name=a.txt&encoding=rot13", "encoding: input should be 'utf-8', 'utf-16'"),
        ("", "name: field required"),
        ("name=a.txt&model=nope", "there is no model 'nope'"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(client, query, part):
    answer = client.post(f"/v1/predict-file?{query}", content=b"good\n")
    assert answer.status_code in (404, 422)
    assert part in answer.json()["error"]


@pytest.mark.parametrize(
    ("name", "content", "query", "truths"),
    [
        ("a.csv", b"text,label\ngood,pos\nbad, neg \n", {}, ["pos", "neg"]),
        ("a.csv", b"review,Category\ngood,x\nbad,y\n", {}, ["x", "y"]),
        ("a.csv", b"text,mine\ngood,pos\n", {}, [None]),
        ("a.csv", b"text,mine\ngood,pos\n", {"label_column": "mine"}, ["pos"]),
        ("a.csv", b"text,label\ngood,pos\nbad,\n", {}, [None, None]),  # no label to compare with
        ("a.txt", b"label\n", {}, [None]),
        ("a.jsonl", b'{"text": "good", "labels": ["a", "b"]}\n', {}, [["a", "b"]]),
        ("a.jsonl", b'{"text": "good", "label": {"a": 0.2, "b": 0.8}}\n', {}, ["b"]),
    ],
)
def test_correct_labels_of_a_file_come_back(client, name, content, query, truths):
    answer = client.post("/v1/predict-file", params={"name": name, **query}, content=content)
    assert answer.status_code == 200, answer.text
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row.get("truth") for row in rows] == truths


def test_a_label_column_that_is_named_must_be_there(client):
    query = {"name": "a.csv", "label_column": "gone"}
    answer = client.post("/v1/predict-file", params=query, content=b"text,label\ngood,pos\n")
    assert answer.status_code == 422
    assert "label_column" in answer.json()["error"]
    assert "--label" not in answer.json()["error"]
