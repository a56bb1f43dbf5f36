"""The feature graph is looked into with a mouse and with keys."""

import re

import pytest

from explorer_page import TEXT, expect, explanation, shown_edges, signed

pytestmark = pytest.mark.browser


def test_hovering_a_word_shows_where_it_goes(page):
    every = shown_edges(page)
    page.hover('#graph [data-id="word:4"]')
    expect(page.locator("#details h3")).to_have_text("\u201cdull\u201d")
    assert 0 < shown_edges(page) < every
    page.hover("#words .word >> nth=1")
    expect(page.locator("#details h3")).to_have_text("\u201cplot\u201d")
    page.hover("h1")
    assert shown_edges(page) == every


def test_hovering_a_node_shows_what_it_saw(page, server):
    drawn = explanation(server, TEXT)["graph"]
    node = max(drawn["nodes"], key=lambda node: node["radius"])
    every = shown_edges(page)
    page.hover(f'#graph [data-id="{node["id"]}"]')
    expect(page.locator("#details h3")).to_have_text(
        f"Layer {node['layer']}, map {node['map']}, row {node['row']}"
    )
    assert 0 < shown_edges(page) < every
    for word in drawn["words"]:
        seen = node["word_contributions"][word["position"]]
        told = page.locator(f'#graph [data-id="{word["id"]}"] .amount')
        expect(told).to_have_text(signed(seen))


def test_clicking_a_node_shows_what_its_detectors_look_for(page, server):
    drawn = explanation(server, TEXT)["graph"]
    for layer, detectors in ((1, 2), (2, 1)):
        node = next(node for node in drawn["nodes"] if node["layer"] == layer)
        page.click(f'#graph [data-id="{node["id"]}"]')
        expect(page.locator("#details .detector")).to_have_count(detectors)
        assert page.locator("#details .detector li").count() > 1
    page.hover("h1")
    expect(page.locator("#details .detector")).to_have_count(1)  # it stays until it is let go
    page.keyboard.press("Tab")


def test_without_a_corpus_the_page_says_how_to_get_detectors(opened, running):
    page = opened(address=running("first").address)
    page.click("#graph .disc-node >> nth=0")
    expect(page.locator("#details .detector")).to_contain_text("--corpus")


def test_strength_nodes_and_class_filter_the_graph(page, server):
    every = shown_edges(page)
    page.locator("#strength").fill("40")
    assert 0 < shown_edges(page) < every
    page.locator("#strength").fill("0")
    page.select_option("#nodes", "5")
    expect(page.locator('#graph .edge[d*="C"]')).to_have_count(
        len(explanation(server, TEXT, nodes=5)["graph"]["edges"])
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


def test_everything_in_the_graph_is_reached_by_keyboard(page):
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
