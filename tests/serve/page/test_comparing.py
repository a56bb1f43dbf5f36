"""Two sentences side by side."""

import pytest

from explorer_page import OTHER, TEXT, expect

pytestmark = pytest.mark.browser


def test_two_sentences_are_compared(opened):
    page = opened("#view=compare")
    page.fill("#first", TEXT)
    page.fill("#second", OTHER)
    expect(page.locator("#aligned .pair")).to_have_count(len(TEXT.split()))
    expect(page.locator("#difference")).to_contain_text("The logit of")
    expect(page.locator("#changes tbody tr")).to_have_count(6)  # all of the tiny network's
    before = page.locator("#aligned .word small").all_text_contents()
    page.hover("#changes tbody tr >> nth=0")
    assert page.locator("#aligned .word small").all_text_contents() != before
    page.hover("h1")
    assert page.locator("#aligned .word small").all_text_contents() == before
    expect(page.locator("#second-only")).to_contain_text("drawn only here")


def test_a_comparison_has_a_link_too(opened):
    page = opened("#view=compare&first=good&second=very+bad&class=pos")
    expect(page.locator("#aligned .pair")).to_have_count(2)
    assert page.input_value("#second") == "very bad"
    assert page.input_value("#compare-class") == "pos"
