"""Small screens, and light and dark ones."""

from itertools import pairwise

import pytest

from explorer_page import expect

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("view", ["explain", "compare", "file"])
def test_the_page_fits_a_phone(opened, view):
    page = opened(f"#view={view}", viewport={"width": 390, "height": 844})
    expect(page.locator(f"#{view}")).to_be_visible()
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


def test_light_and_dark_follow_the_system_or_the_user(opened):
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
