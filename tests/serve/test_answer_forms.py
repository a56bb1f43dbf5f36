"""``top`` and ``abstain_below``: the server tells what ``dcnn predict --json`` tells."""

import json

import pytest
from fastapi.testclient import TestClient

from dcnn.commands.prediction_lines import LineForm
from dcnn.predictor import Predictor
from dcnn.serve.app import make_app
from dcnn.serve.prediction import AT_ONCE
from dcnn.serve.registry import Registry, ServedModel
from dcnn.serve.schemas import Explanations, Predictions
from untrained import make_artifact

TEXTS = ["the plot is not dull", "", "very good acting", "words that nobody knows", "bad , bad ."]
THRESHOLDS = (0.3, 0.5, 0.7)


@pytest.fixture(scope="module")
def several() -> Predictor:
    """A model that may give a text several labels."""
    return Predictor(make_artifact(classes=("dull", "good", "plot"), thresholds=THRESHOLDS))


@pytest.fixture
def several_client(several) -> TestClient:
    return TestClient(make_app(Registry([ServedModel("several", several)])))


def as_the_command_says(predictor: Predictor, texts: list[str], form: dict) -> list[dict]:
    """The objects of ``dcnn predict --json``."""
    below = form.get("abstain_below")
    lines = LineForm(as_json=True, top=form.get("top", 1), abstains=below is not None)
    told = [json.loads(lines.line(one)) for one in predictor.predict(texts, below or 0.0)]
    for one in told:
        del one["text"]
        if "top" not in form:  # the command's default, which here is not told
            del one["top"]
    return told


def forms_to_ask_for(predictor: Predictor) -> list[dict]:
    """Every number of labels, one too many, and a bound just at the probability of each text."""
    best = [one.probability for one in predictor.predict(TEXTS)]
    tops = [{}, *({"top": top} for top in range(1, len(predictor.classes) + 2))]
    bounds = [{}, *({"abstain_below": below} for below in (0, *best, 1))]
    return [top | bound for top in tops for bound in bounds]


@pytest.mark.parametrize("model", ["first", "stars"])
def test_an_answer_is_what_the_command_says(client, registry, model):
    predictor = registry.get(model).predictor
    for form in forms_to_ask_for(predictor):
        answer = client.post("/v1/predict", json={"texts": TEXTS, "model": model, **form}).json()
        assert answer["predictions"] == as_the_command_says(predictor, TEXTS, form)
        Predictions(**answer)  # as the description says


def test_a_file_and_a_large_batch_are_answered_as_texts_are(client, registry):
    texts = [text or "." for text in TEXTS] * 100
    assert sum(map(len, texts)) > AT_ONCE
    form = {"top": 2, "abstain_below": 0.7}
    expected = as_the_command_says(registry.get("first").predictor, texts, form)
    assert {one["abstained"] for one in expected} == {False, True}
    answer = client.post("/v1/predict", json={"texts": texts, **form})
    assert answer.json()["predictions"] == expected
    lines = client.post(
        "/v1/predict-file", params={"name": "a.txt", **form}, content="\n".join(texts)
    ).text.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"line": number, "text": text, **told}
        for number, (text, told) in enumerate(zip(texts, expected, strict=True), 1)
    ]


def test_an_answer_that_nothing_was_asked_of_is_the_same_byte_by_byte(client, registry):
    (one,) = registry.get("first").predictor.predict([TEXTS[0]])
    (best, p), (other, q) = one.ranked
    expected = (
        f'{{"model":"first","predictions":[{{"label":"{best}","probability":{p},'
        f'"probabilities":{{"{best}":{p},"{other}":{q}}}}}]}}'
    )
    assert client.post("/v1/predict", json={"text": TEXTS[0]}).text == expected


@pytest.mark.parametrize(
    ("form", "told"),
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
def test_a_value_that_has_no_meaning_is_refused(client, form, told):
    answer = client.post("/v1/predict", content=f'{{"text": "good", {form}}}')
    assert (answer.status_code, answer.json()) == (422, {"error": told})


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("top=0", "top: input should be greater than or equal to 1"),
        ("top=two", "top: input should be a valid integer, unable to parse string as an integer"),
        ("abstain_below=2", "abstain_below: input should be less than or equal to 1"),
        ("abstain_below=nan", "abstain_below: input should be a finite number"),
    ],
)
def test_so_it_is_of_a_file(client, form, told):
    answer = client.post(f"/v1/predict-file?name=a.txt&{form}", content=b"good\n")
    assert (answer.status_code, answer.json()) == (422, {"error": told})


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (
            {"top": 2},
            "top=2 is for models that give one label; this one gives every label from its "
            "threshold on; the field probabilities tells those of all",
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
def test_a_model_of_several_labels_neither_ranks_nor_abstains(several_client, form, told):
    answer = several_client.post("/v1/predict", json={"text": "good", **form})
    assert (answer.status_code, answer.json()) == (422, {"error": told})
    answer = several_client.post(
        "/v1/predict-file", params={"name": "a.txt", **form}, content=b"good\n"
    )
    assert (answer.status_code, answer.json()) == (422, {"error": told})


def test_such_a_model_tells_its_most_probable_label_where_one_is_asked_for(several_client, several):
    answer = several_client.post("/v1/predict", json={"text": "good", "top": 1}).json()
    (one,) = several.predict(["good"])
    (told,) = answer["predictions"]
    assert told["top"] == [{"label": one.label, "probability": one.probability}]
    assert told["labels"] == list(one.labels)


def test_the_description_tells_of_both(client):
    paths = client.get("/openapi.json").json()["paths"]
    body = paths["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]
    fields = body["schema"]["properties"]
    assert (fields["top"]["minimum"], fields["top"]["type"]) == (1, "integer")
    below = fields["abstain_below"]
    assert (below["minimum"], below["maximum"], below["type"]) == (0, 1, "number")
    assert "default" not in fields["top"] | below  # to leave it out is none of the values
    names = {one["name"] for one in paths["/v1/predict-file"]["post"]["parameters"]}
    assert {"top", "abstain_below"} <= names


def test_explanations_of_several_labels_are_as_the_description_says(several_client, several):
    answer = several_client.post("/v1/explain", json={"text": "good plot"}).json()
    (one,) = Explanations(**answer).explanations
    assert one.labels == list(several.predict(["good plot"])[0].labels)
