"""What the page shows for texts below the threshold that a model stores."""

import json
import os
import random
from pathlib import Path

import pytest

from dcnn import artifact as model_folder
from dcnn.metrics import abstention_record, risk_coverage
from dcnn.predictor import Predictor
from explorer_page import expect
from serve_process import start_server
from untrained import VOCABULARY_TEXT, make_artifact

pytestmark = pytest.mark.browser

WORDS = VOCABULARY_TEXT.split()
TEXTS = [" ".join(random.Random(n).choices(WORDS, k=6)) for n in range(200)]


@pytest.fixture(scope="module")
def abstaining(tmp_path_factory):
    """A server of a model with a threshold, the address, and its predictions of the texts."""
    folder = tmp_path_factory.mktemp("abstaining")
    artifact = make_artifact(classes=("neg", "oos", "pos"))
    probabilities = Predictor(artifact).probabilities(TEXTS)
    truth = probabilities.argmax(axis=1)
    truth[probabilities.max(axis=1) < 0.45] = -1
    curve = risk_coverage(truth, probabilities, 1)
    record = abstention_record(curve, "dev", "oos", 0.7)
    artifact.metadata["abstention"] = record
    model_folder.save(folder / "unsure", artifact)
    server = start_server(folder, "unsure", "--port", 0)
    yield server.address, Predictor(artifact).predict(TEXTS, abstain=True), record
    server.process.terminate()
    server.process.communicate()


def pick(predictions, *, abstained, oos=False):
    return next(p for p in predictions if p.abstained == abstained and (p.label == "oos") == oos)


def test_an_uncertain_text_has_no_answer_but_its_probability(opened, abstaining, tmp_path):
    address, predictions, record = abstaining
    sure, unsure = pick(predictions, abstained=False), pick(predictions, abstained=True)
    page = opened(f"#view=explain&text={unsure.text}", address)
    label = page.locator("#verdict .label")
    expect(label).to_contain_text("no answer")
    expect(label.locator("small")).to_have_text(f"{100 * unsure.probability:.1f} %")
    reason = page.locator("#verdict .reason")
    expect(reason).to_contain_text(f"The most probable label is {unsure.label}")
    expect(reason).to_contain_text(f"below {100 * record['threshold']:.1f} %")
    expect(reason).to_contain_text("the threshold for a precision of 70.0 %")
    expect(page.locator("#words .word")).to_have_count(6)
    expect(page.locator("#deletions li").first).to_be_visible()
    picture = Path(os.environ.get("DCNN_SCREENSHOTS", tmp_path)) / "no-answer.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size
    outside = pick(predictions, abstained=True, oos=True)
    page.fill("#text", outside.text)
    expect(reason).to_have_text("The most probable label, oos, is out of scope.")
    page.fill("#text", sure.text)
    expect(label).to_contain_text(str(sure.label))
    expect(reason).to_have_count(0)


def test_two_sentences_and_files_have_no_answer_too(opened, abstaining):
    address, predictions, _ = abstaining
    unsure = pick(predictions, abstained=True)
    page = opened("#view=compare", address)
    page.fill("#first", unsure.text)
    page.fill("#second", pick(predictions, abstained=False).text)
    expect(page.locator("#first-answer b")).to_have_text("no answer")
    page.click("#tab-file")
    page.set_input_files(
        "#chosen", {"name": "a.txt", "mimeType": "", "buffer": "\n".join(TEXTS).encode()}
    )
    count = sum(p.abstained for p in predictions)
    expect(page.locator("#table-summary")).to_contain_text(f"no answer {count}")
    page.select_option("#only", "no answer")
    expect(page.locator("#page-number")).to_have_text(f"1\u2013{min(count, 50)} of {count}")
    expect(page.locator("#table tbody tr")).to_have_count(min(count, 50))
    expect(page.locator("#table tbody tr td:nth-child(2)").first).to_have_text("no answer")
    with page.expect_download() as download:
        page.click("#download-csv")
    lines = Path(download.value.path()).read_text().splitlines()[1:]
    assert len(lines) == count
    assert all(",," in line for line in lines)
    with page.expect_download() as download:
        page.click("#download-jsonl")
    rows = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert all(row["label"] is None and row["abstained"] for row in rows)
