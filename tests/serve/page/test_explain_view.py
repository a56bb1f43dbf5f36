"""The view of one sentence: label, words and feature graph, by mouse and by keyboard."""

import re

import pytest

from explorer_page import OTHER, TEXT, expect, explanation, shown_edges, signed

pytestmark = pytest.mark.browser


def test_typing_updates_label_probabilities_and_words(page, server):
    page.fill("#text", "")
    expect(page.locator("#problem")).to_be_visible()
    expect(page.locator("#problem")).to_contain_text("Type a sentence")
    page.locator("#text").press_sequentially(OTHER, delay=5)
    found = explanation(server, OTHER)
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    expect(page.locator("#verdict .label")).to_contain_text(found["label"])
    share = f"{100 * found['probability']:.1f} %"
    expect(page.locator("#verdict .label small")).to_have_text(share)
    for word, button in zip(found["words"], page.locator("#words .word").all(), strict=True):
        expect(button).to_have_text(word["word"] + signed(word["attribution"]))
        assert ("against" in button.get_attribute("class")) == (word["attribution"] < 0)


def test_the_label_does_not_wait_for_the_explanation(opened):
    page = opened("#view=explain&text=")
    expect(page.locator("#problem")).to_contain_text("Type a sentence")
    waiting = []
    page.route("**/v1/explain", lambda route: waiting.append(route))  # held back until continue_
    page.fill("#text", OTHER)
    expect(page.locator("#problem")).to_have_text("Waiting for the server\u2026")
    expect(page.locator("#verdict .label")).to_be_visible()
    expect(page.locator("#words")).to_be_hidden()
    waiting[0].continue_()
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    expect(page.locator("#problem")).to_be_hidden()


def test_a_keystroke_is_answered_within_100_ms(page):
    """From a key to the words on the screen; the fastest, since other tests run beside this."""
    times = page.evaluate(
        """async () => {
            const field = document.getElementById("text"), words = document.getElementById("words");
            const times = [];
            for (const letter of " very good and not bad") {
                const start = performance.now();
                const shown = new Promise(done => {
                    const watch = new MutationObserver(() => { watch.disconnect(); done(); });
                    watch.observe(words, {childList: true});
                });
                field.value += letter;
                field.dispatchEvent(new Event("input"));
                await shown;
                times.push(performance.now() - start);
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    assert times[0] < 100


def test_a_model_without_a_graph_shows_its_prediction(page):
    page.select_option("#model", "bag")
    expect(page.locator("#problem")).to_contain_text("nbow has no feature graph")
    expect(page.locator("#verdict .label")).to_be_visible()
    expect(page.locator("#graph")).to_be_hidden()


def test_markup_is_shown_as_text(opened):
    text = "<img src=x onerror=alert(1)> <b>good</b>"
    page = opened(
        "#view=explain&text=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%20%3Cb%3Egood%3C/b%3E"
    )
    expect(page.locator("#text")).to_have_value(text)
    expect(page.locator("#words .word").first).to_be_visible()
    assert page.locator("main img, main .word b").count() == 0


def test_pointing_at_a_word_keeps_its_paths(page):
    every = shown_edges(page)
    page.hover('#graph [data-id="word:4"]')
    expect(page.locator("#details h3")).to_have_text("\u201cdull\u201d")
    assert 0 < shown_edges(page) < every
    page.hover("#words .word >> nth=1")
    expect(page.locator("#details h3")).to_have_text("\u201cplot\u201d")
    page.hover("h1")
    assert shown_edges(page) == every


def test_pointing_at_a_node_shows_the_contributions_of_words(page, server):
    page.select_option("#nodes", "10")
    expect(page.locator("#graph .disc-node").first).to_be_visible()
    width = page.locator("#graph").evaluate("graph => graph.clientWidth")
    graph = explanation(server, TEXT, nodes=10, width=width)["graph"]
    node = max(graph["layout"]["nodes"], key=lambda placed: placed["radius"])["node"]
    every = shown_edges(page)
    page.hover(f'#graph [data-id="{node["id"]}"]')
    expect(page.locator("#details h3")).to_have_text(
        f"Layer {node['layer']}, map {node['map']}, row {node['row']}"
    )
    assert 0 < shown_edges(page) < every
    for position, expected in enumerate(graph["word_contributions"][node["id"]]):
        amount = page.locator(f'#graph [data-id="word:{position}"] .amount')
        expect(amount).to_have_text(signed(expected))


def test_clicking_a_node_shows_what_activates_its_detectors(page, server):
    page.select_option("#nodes", "10")
    expect(page.locator("#graph .disc-node").first).to_be_visible()
    drawn = explanation(server, TEXT, nodes=10)["graph"]["layout"]["nodes"]
    for layer, detectors in ((1, 2), (2, 1)):
        node = next(placed["node"] for placed in drawn if placed["node"]["layer"] == layer)
        page.click(f'#graph [data-id="{node["id"]}"]')
        expect(page.locator("#details .detector")).to_have_count(detectors)
        assert page.locator("#details .detector li").count() > 1
    page.hover("h1")
    expect(page.locator("#details .detector")).to_have_count(1)  # pinned
    page.keyboard.press("Tab")


def test_without_a_corpus_the_page_says_how_to_get_detectors(running, opened):
    page = opened("#nodes=10", address=running("first").address)
    page.click("#graph .disc-node >> nth=0")
    expect(page.locator("#details .detector")).to_contain_text("--corpus")


def test_the_graph_is_filtered_by_strength_nodes_and_class(page, server):
    every = shown_edges(page)
    page.locator("#strength").fill("40")
    assert 0 < shown_edges(page) < every
    page.locator("#strength").fill("0")
    page.select_option("#nodes", "5")
    expect(page.locator('#graph .edge[d*="C"]')).to_have_count(
        len(explanation(server, TEXT, nodes=5)["graph"]["layout"]["edges"])
    )
    for label in ("neg", "pos"):
        page.select_option("#class", label)
        expect(page.locator("#graph .top-label")).to_have_text(label)
    page.click("#verdict .bars button:has-text('neg')")
    expect(page.locator("#graph .top-label")).to_have_text("neg")


def test_the_graph_is_zoomed_by_buttons_wheel_and_drag(page):
    def transform() -> str:
        return page.locator("#graph svg > g").get_attribute("transform")

    def scale() -> float:
        return float(re.search(r"scale\(([\d.]+)", transform())[1])

    start = scale()
    page.click("#zoom-in")
    assert scale() == pytest.approx(start * 1.25, rel=1e-3)
    page.click("#zoom-out")
    box = page.locator("#graph").bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + 20)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("s => !document.querySelector('#graph g').outerHTML.includes(s)",
                           arg=f"scale({start:.4f})")  # fmt: skip
    before = transform()
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 60)
    page.mouse.up()
    assert transform() != before
    page.click("#zoom-fit")
    assert scale() <= start + 1e-3


def test_the_keyboard_reaches_everything_in_the_graph(page):
    page.select_option("#nodes", "10")
    expect(page.locator("#graph .disc-node").first).to_be_visible()
    page.focus("#zoom-in")
    page.keyboard.press("Tab")
    here = "document.activeElement.dataset.id"
    assert page.evaluate(here).startswith("word:")
    visited = []
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
        visited.append(page.evaluate(here))
    assert visited[0].startswith("1:")
    assert visited[1].startswith("2:")
    assert visited[2] == "root"
    assert visited[3].startswith("2:")
    page.keyboard.press("Enter")
    expect(page.locator("#details .detector")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#details .detector")).to_have_count(0)


def test_the_boxes_of_the_graph_add_up_to_the_logit_and_cover_the_decision(page, server):
    found = explanation(server, TEXT)
    boxes = found["graph"]["layout"]["ngrams"]
    assert found["graph"]["coverage"] >= 0.8
    expect(page.locator("#graph .ngram-node")).to_have_count(len(boxes))
    total = sum(box["ngram"]["contribution"] for box in boxes)
    assert total == pytest.approx(found["logit"], abs=1e-4)
    shown = page.locator("#graph .ngram-node .amount").all_text_contents()
    assert sorted(shown) == sorted(signed(box["ngram"]["contribution"]) for box in boxes)
    expect(page.locator("#caption")).to_contain_text(
        f"have {100 * found['graph']['coverage']:.1f} % of the absolute contributions"
    )


def test_an_ngram_opens_to_its_nodes_and_closes_again(page, server):
    ngram = explanation(server, TEXT)["graph"]["layout"]["ngrams"][0]["ngram"]
    count = page.locator("#graph .ngram-node").count()
    page.click(f'#graph [data-id="{ngram["id"]}"]')
    expect(page.locator("#details h3")).to_have_text(f"\u201c{ngram['text']}\u201d")
    page.click("#details .expand")
    opened = explanation(server, TEXT, ngram=ngram["positions"])["graph"]["layout"]
    expect(page.locator("#graph .disc-node")).to_have_count(len(opened["nodes"]))
    expect(page.locator("#opened")).to_contain_text("Nodes of")
    page.wait_for_function("() => location.hash.includes('ngram=')")
    page.reload()
    expect(page.locator("#graph .disc-node")).to_have_count(len(opened["nodes"]))
    page.click("#back")
    expect(page.locator("#graph .ngram-node")).to_have_count(count)
    expect(page.locator("#back")).to_be_hidden()
    # The sentence changes under an open n-gram: all n-grams are shown again.
    page.click("#ngrams button >> nth=0")
    expect(page.locator("#graph .disc-node").first).to_be_visible()
    page.fill("#text", "good")
    expect(page.locator("#words .word")).to_have_count(1)
    expect(page.locator("#graph .ngram-node").first).to_be_visible()
    opened_faults = [fault for fault in page.opened_faults if "422" not in fault]
    assert opened_faults == []
    page.opened_faults.clear()  # a browser logs every answer of 400 and above


def test_a_word_is_left_out_or_replaced_by_a_click(page, server):
    found = explanation(server, TEXT)
    one = found["replacements"][0]
    first = page.locator("#replacements li").first
    expect(first).to_contain_text(f"{one['label']} with {one['word']} {one['replacement']}")
    first.locator("button").click()
    words = TEXT.split()
    words[one["position"]] = one["replacement"]
    expect(page.locator("#text")).to_have_value(" ".join(words))
    expect(page.locator("#verdict .label")).to_contain_text(str(one["label"]))
    page.click("#deletions li button >> nth=0")
    expect(page.locator("#words .word")).to_have_count(len(words) - 1)
