"""Tabs, links and the way back lead to what was on the screen."""

import pytest

from explorer_page import OTHER, TEXT, Page, expect

pytestmark = pytest.mark.browser


def test_tabs_are_walked_with_arrows(page):
    page.focus("#tab-explain")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#compare")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#drop")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "tab-file"


def test_a_link_reopens_what_is_on_the_screen(page, opened):
    page.fill("#text", OTHER)
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    page.select_option("#class", "neg")
    page.locator("#strength").fill("10")
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


def test_back_leads_to_the_view_before(page):
    page.click("#tab-compare")
    expect(page.locator("#compare")).to_be_visible()
    page.go_back()
    expect(page.locator("#explain")).to_be_visible()
    expect(page.locator("#text")).to_have_value(TEXT)
