"""The page around its views: tabs, links, screens, themes, and the state of its server."""

import json
import urllib.request
from itertools import pairwise

import pytest

from explorer_page import OTHER, TEXT, Page, expect
from serve_process import start_server

pytestmark = pytest.mark.browser


def test_arrow_keys_switch_tabs(page):
    page.focus("#tab-explain")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#compare")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#drop")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "tab-file"
    page.keyboard.press("ArrowRight")
    expect(page.locator("#about-name")).to_have_text("first")


def test_a_link_restores_the_state_of_the_page(page, opened):
    page.fill("#text", OTHER)
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    page.select_option("#class", "neg")
    page.locator("#strength").fill("10")
    page.select_option("#nodes", "10")
    expect(page.locator("#graph .disc-node").first).to_be_visible()
    page.click("#zoom-in")
    page.click("#graph .disc-node >> nth=2", force=True)
    expect(page.locator("#details .detector").first).to_be_visible()
    page.wait_for_function("() => location.hash.includes('node=')")
    hash_ = page.evaluate("location.hash")

    def screen(page: Page) -> list[str]:
        return [
            page.locator("#details").inner_text(),
            page.locator("#graph .pinned").get_attribute("data-id"),
            page.locator("#graph svg > g").get_attribute("transform"),
            page.locator("#graph .top-label").text_content(),
            page.locator("#strength-value").inner_text(),
        ]

    again = opened(hash_)
    expect(again.locator("#details .detector")).to_have_count(
        page.locator("#details .detector").count()
    )
    assert again.input_value("#text") == OTHER
    assert screen(again) == screen(page)
    again.reload()
    expect(again.locator("#details .detector").first).to_be_visible()
    assert screen(again) == screen(page)


def test_the_back_button_leads_to_the_previous_view(page):
    page.click("#tab-compare")
    expect(page.locator("#compare")).to_be_visible()
    page.go_back()
    expect(page.locator("#explain")).to_be_visible()
    expect(page.locator("#text")).to_have_value(TEXT)


@pytest.mark.parametrize("view", ["explain", "compare", "file", "model"])
def test_the_page_fits_a_phone(opened, view):
    page = opened(f"#view={view}", viewport={"width": 390, "height": 844})
    expect(page.locator(f"#tab-{view}[aria-selected=true]")).to_be_visible()
    page.wait_for_timeout(300)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_nothing_overlaps_on_the_narrowest_phone(opened):
    page = opened(viewport={"width": 320, "height": 640})
    expect(page.locator("#words .word").first).to_be_visible()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 320
    boxes = [page.locator(f"#{name}").bounding_box() for name in ("model", "link", "theme")]
    for left, right in pairwise(boxes):
        apart = left["x"] + left["width"] <= right["x"] + 0.5
        assert apart or left["y"] + left["height"] <= right["y"] + 0.5


def test_the_theme_follows_the_system_or_the_user(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = opened(color_scheme="light").evaluate(ground)
    page = opened(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.click("#theme")
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light
    page.click("#theme")
    assert page.evaluate(ground) == dark


def test_the_page_reports_a_dead_server_and_its_return(opened, folder):
    server = start_server(folder, "first", "--port", 0)
    try:
        page = opened(address=server.address)
        expect(page.locator("#words .word").first).to_be_visible()
        server.process.kill()
        server.process.communicate()
        page.fill("#text", OTHER)
        expect(page.locator("#banner")).to_be_visible()
        expect(page.locator("#banner")).to_contain_text("does not answer")
        expect(page.locator("#answer")).to_be_visible()  # the last answer stays
        assert all("ERR_" in fault for fault in opened.faults)
        server = start_server(folder, "first", "--port", server.port)
        expect(page.locator("#banner")).to_be_hidden(timeout=15000)
        expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    finally:
        server.process.kill()
        server.process.communicate()
        opened.faults.clear()  # the browser logs failed connections


def test_the_key_is_requested_once(running, opened):
    page = opened(address=running("first", "--api-key", "secret").address)
    page.fill("#key", "secret")
    page.click("#key-dialog button")
    expect(page.locator("#words .word").first).to_be_visible()
    page.reload()
    expect(page.locator("#words .word").first).to_be_visible()


def test_the_docs_page_lists_every_endpoint(opened, server):
    page = opened("docs")
    with urllib.request.urlopen(f"{server.address}/openapi.json") as answer:
        paths = list(json.load(answer)["paths"])
    expect(page.locator(".endpoint h3 code")).to_have_text(paths)
