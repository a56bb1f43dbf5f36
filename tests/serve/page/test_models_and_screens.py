"""Examples, many classes, similar texts, files with labels; and that nothing is ever clipped."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dcnn import artifact as model_folder
from dcnn.inspection.similar import TextIndex
from dcnn.predictor import Predictor
from explorer_page import Page, expect
from serve_process import Running, start_server
from untrained import VOCABULARY_TEXT, make_artifact

pytestmark = pytest.mark.browser

WORDS = VOCABULARY_TEXT.split()
TEXTS = [" ".join(random.Random(n).choices(WORDS, k=5)) for n in range(140)]
HOSTILE = "<img src=x onerror=alert(1)> good plot"
LONG = " ".join(random.Random(1).choices(WORDS, k=60))
CLASSES = [f"a-rather-long-class-name-{number}" for number in range(151)]


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    kept = tuple((text, "pos") for text in (HOSTILE, *TEXTS[:3]))
    counts = {"label_counts": {"neg": 30, "pos": 10}, "test_accuracy": 0.75}
    return Predictor(replace(make_artifact(), examples=kept, metadata=counts))


@pytest.fixture(scope="module")
def models(tmp_path_factory, predictor) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    model_folder.save(folder / "kept", predictor.artifact)
    labels = ["pos", "neg"] * 70
    TextIndex.build(predictor, [HOSTILE, *TEXTS[:139]], labels).save(folder / "kept")
    folds = {"dev_accuracy": 0.5, "examples": {"train": 9, "dev": 0}}
    folds |= {"cross_validation": {"folds": 5, "examples": 9}}
    model_folder.save(folder / "many", replace(make_artifact(classes=CLASSES), metadata=folds))
    running = start_server(folder, "kept", "many", "--port", 0)
    yield running
    running.process.terminate()
    running.process.communicate()


@pytest.fixture
def show(opened, models):
    def show(hash_: str = "", **options: object) -> Page:
        return opened(hash_, models.address, **options)

    return show


def test_examples_are_those_of_the_model(show):
    page = show()
    expect(page.locator("#text")).to_have_value(HOSTILE)
    expect(page.locator("#examples button")).to_have_text([HOSTILE, *TEXTS[:3]])
    page.click("#examples button >> nth=1")
    expect(page.locator("#text")).to_have_value(TEXTS[0])
    expect(page.locator("#words .word")).to_have_count(5)
    page.click("#tab-compare")
    expect(page.locator("#first")).to_have_value(HOSTILE)
    page.click("#tab-explain")
    # The other model keeps none, so it starts empty, with a hint.
    page.select_option("#model", "many")
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator("#examples button")).to_have_count(0)
    expect(page.locator("#problem")).to_contain_text("--keep-examples")
    page.fill("#text", "a text of my own")
    page.select_option("#model", "kept")
    expect(page.locator("#text")).to_have_value("a text of my own")
    assert page.locator("main img").count() == 0


def test_the_most_similar_texts_are_listed(show, predictor):
    page = show(f"#text={TEXTS[5]}")
    items = page.locator("#similar li button")
    expect(items).to_have_count(5)
    expect(items.first).to_have_text(TEXTS[5])
    expect(page.locator("#similar li .number").first).to_have_text("1.00")
    items.nth(1).click()
    expect(page.locator("#text")).not_to_have_value(TEXTS[5])
    page.select_option("#model", "many")
    expect(page.locator("#similar-card")).to_be_hidden()


def test_many_classes_are_searched_and_scrolled(show):
    page = show("#model=many&text=good+plot")
    bars = page.locator("#verdict .bars li:visible")
    expect(bars).to_have_count(151)
    page.fill("#verdict .find", "NAME-15")
    expect(bars).to_have_count(2)  # 15 and 150
    page.click("#verdict .bars li:visible button >> nth=1")
    expect(page.locator("#graph .top-label")).to_contain_text("a-rather-long-class")
    expect(page.locator("#verdict .find")).to_have_value("NAME-15")
    expect(bars).to_have_count(2)


def test_an_explanation_that_arrives_does_not_interrupt_a_search(show):
    page = show("#model=many&text=good+plot")
    page.locator("#verdict .find").press_sequentially("NAME-1")
    with page.expect_response("**/v1/explain"):
        page.evaluate("""() => {
            document.querySelector('#text').value = 'plot good';
            document.querySelector('#text').dispatchEvent(new Event('input'));
        }""")
    expect(page.locator("#graph")).to_contain_text("plot")
    page.keyboard.type("50")
    expect(page.locator("#verdict .find")).to_have_value("NAME-150")
    expect(page.locator("#verdict .bars li:visible")).to_have_count(1)


def test_the_model_tab_shows_scores_settings_and_labels(show):
    page = show("#view=model&model=kept")
    expect(page.locator("#metadata")).to_contain_text("test accuracy75.0 %")
    expect(page.locator("#labels .bar")).to_have_text(["neg30", "pos10"])
    expect(page.locator("#label-find")).to_be_hidden()
    page.click("#settings-card summary")
    expect(page.locator("#settings")).to_contain_text("model.dim8")
    page.click("#card-card summary")
    expect(page.locator("#card-text")).to_contain_text("# kept")
    page.select_option("#model", "many")
    expect(page.locator("#metadata")).to_contain_text("accuracy, 5-fold cross-validation50.0 %")
    expect(page.locator("#metadata")).not_to_contain_text("dev")
    expect(page.locator("#labels .bar")).to_have_count(151)
    page.fill("#label-find", "name-77")
    expect(page.locator("#labels .bar")).to_have_count(1)


def test_equal_words_are_told_apart_by_their_position(show):
    page = show("#model=kept&text=good+plot+good")
    expect(page.locator("#deletions li")).to_have_count(3)
    places = page.locator("#deletions .aside").all_inner_texts()
    assert sorted(places) == [" word 1", " word 3"]


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_the_lists_fill_the_width_and_the_header_is_low(show, width):
    page = show("#model=many&text=good+plot", viewport={"width": width, "height": 844})
    expect(page.locator("#words .word")).to_have_count(2)
    last = page.locator(".lists .card").nth(2)
    assert last.bounding_box()["x"] + last.bounding_box()["width"] > 0.95 * width
    first = page.locator(".lists .card").nth(0)
    below = last.bounding_box()["y"] > first.bounding_box()["y"] + first.bounding_box()["height"]
    assert below == (width == 390)
    assert page.locator("header").bounding_box()["height"] < 120


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize(("model", "text"), [("kept", "not good"), ("many", LONG)])
def test_nothing_of_the_graph_is_clipped(show, width, model, text):
    page = show(f"#model={model}&text={text}", viewport={"width": width, "height": 844})
    expect(page.locator("#words .word")).to_have_count(len(text.split()))
    page.wait_for_timeout(300)  # laid out again for the width that it has
    for nodes in ("", "10"):
        page.select_option("#nodes", nodes)
        kind = "disc-node" if nodes else "ngram-node"
        expect(page.locator(f"#graph .{kind}").first).to_be_visible()
        outside = page.evaluate(
            """() => {
                const frame = document.getElementById("graph").getBoundingClientRect();
                return [...document.querySelectorAll("#graph .node")].filter((node) => {
                    const box = node.getBoundingClientRect();
                    return box.left < frame.left - 1 || box.right > frame.right + 1
                        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
                }).map((node) => node.dataset.id);
            }"""
        )
        assert outside == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_what_is_open_neither_leaves_the_page_half_empty_nor_out_of_sight(show):
    page = show("#model=kept&text=the+plot+is+not+good", viewport={"width": 1280, "height": 900})
    page.click("#graph .ngram-node >> nth=0")
    sizes = "id => document.getElementById(id).getBoundingClientRect().height"
    assert page.evaluate(sizes, "details") <= max(page.evaluate(sizes, "graph"), 400) + 20
    phone = show(f"#model=kept&text={LONG}", viewport={"width": 390, "height": 844})
    expect(phone.locator("#words .word")).to_have_count(60)
    phone.click("#graph .ngram-node >> nth=1")
    expect(phone.locator("#details .expand")).to_be_in_viewport()
    # What was pinned at the lower edge of the screen is not under the details.
    phone.keyboard.press("Escape")
    phone.evaluate("scrollTo(0, 0)")
    node = phone.locator("#graph .ngram-node >> nth=4")
    phone.evaluate("top => scrollTo(0, top - 800)", node.bounding_box()["y"])
    phone.mouse.click(*(node.bounding_box()[one] + 5 for one in "xy"))
    expect(phone.locator("#details .expand")).to_be_in_viewport()
    box, panel = node.bounding_box(), phone.locator("#details").bounding_box()
    assert 0 < box["y"] < box["y"] + box["height"] < panel["y"]


@pytest.fixture
def labelled(predictor) -> tuple[bytes, list, list[bool]]:
    """A file, its predictions and which of them are correct: all but every fifth."""
    found = predictor.predict(TEXTS)
    right = [n % 5 > 0 for n in range(len(TEXTS))]
    other = {"pos": "neg", "neg": "pos"}
    rows = [
        json.dumps({"text": one.text, "label": one.label if ok else other[one.label]})
        for one, ok in zip(found, right, strict=True)
    ]
    return "\n".join(rows).encode(), found, right


def upload(page: Page, name: str, content: bytes) -> None:
    expect(page.locator("#tab-file[aria-selected=true]")).to_be_visible()
    expect(page.locator("#model option")).to_have_count(2)
    page.wait_for_function("() => document.getElementById('about-name').textContent")
    page.set_input_files("#chosen", {"name": name, "mimeType": "", "buffer": content})


def test_a_file_with_labels_has_scores_confusions_and_errors(show, labelled):
    content, found, right = labelled
    page = show("#view=file&model=kept")
    upload(page, "a.jsonl", content)
    expect(page.locator("#score")).to_contain_text(f"80.0 % ({sum(right)} of {len(right)})")
    pairs = [(one.label, ok) for one, ok in zip(found, right, strict=True)]
    cells = page.locator("#confusion tbody td")
    expect(cells).to_have_text(
        [
            str(pairs.count(("neg", True))),
            str(pairs.count(("pos", False))),
            str(pairs.count(("neg", False))),
            str(pairs.count(("pos", True))),
        ]
    )
    page.select_option("#kind", "errors")
    wrong = [one for one, ok in zip(found, right, strict=True) if not ok]
    wrong.sort(key=lambda one: -one.probability)
    expect(page.locator("#table td.text")).to_have_text([one.text for one in wrong])
    cells.nth(1).locator("button").click()
    expect(page.locator("#table tbody tr")).to_have_count(pairs.count(("pos", False)))
    page.click("#table-summary .chip")
    page.click("#table button.open >> nth=0")
    expect(page.locator("#words .word")).to_have_count(5)
    page.go_back()
    expect(page.locator("#score")).to_be_visible()


def test_the_slider_shows_coverage_and_precision(show, labelled):
    content, found, right = labelled
    page = show("#view=file&model=kept")
    upload(page, "a.jsonl", content)
    expect(page.locator("#answered")).to_contain_text("Coverage 100 %: 140 of 140 texts")
    expect(page.locator("#answered")).to_contain_text("precision 80.0 %: 112 of 140 labels")
    page.locator("#threshold").fill("70")
    sure = [ok for one, ok in zip(found, right, strict=True) if one.probability >= 0.7]
    assert 0 < len(sure) < len(right)
    expect(page.locator("#answered")).to_have_text(
        f"Coverage {100 * len(sure) / 140:.1f} %: {len(sure)} of 140 texts get a label; "
        f"precision {100 * sum(sure) / len(sure):.1f} %: {sum(sure)} of {len(sure)} labels "
        "are correct."
    )


def test_a_long_file_has_pages(show):
    page = show("#view=file&model=kept")
    upload(page, "a.txt", "\n".join(TEXTS).encode())
    expect(page.locator("#page-number")).to_have_text("1\u201350 of 140")
    expect(page.locator("#previous")).to_be_disabled()
    expect(page.locator("#scores")).to_be_hidden()
    page.click("#next")
    page.click("#next")
    expect(page.locator("#page-number")).to_have_text("101\u2013140 of 140")
    expect(page.locator("#table tbody tr")).to_have_count(40)
    expect(page.locator("#next")).to_be_disabled()
    page.fill("#find", TEXTS[0])
    expect(page.locator("#previous")).to_be_disabled()
