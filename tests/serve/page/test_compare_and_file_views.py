"""The views of two sentences and of a file."""

import json
from pathlib import Path

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
    expect(page.locator("#second-only")).to_contain_text("of the absolute contributions")


def test_a_link_restores_a_comparison(opened):
    page = opened("#view=compare&first=good&second=very+bad&class=pos")
    expect(page.locator("#aligned .pair")).to_have_count(2)
    assert page.input_value("#second") == "very bad"
    assert page.input_value("#compare-class") == "pos"


def saved(download) -> list[str]:
    return Path(download.value.path()).read_text().splitlines()


CSV = f'text,who\n"{TEXT}",a\n=1+1,b\n{OTHER},c\n'


@pytest.mark.parametrize("way", ["choose", "drop"])
def test_a_file_is_shown_as_a_table(opened, way):
    page = opened("#view=file")
    expect(page.locator("#model option")).to_have_count(2)  # the page has loaded
    if way == "choose":
        page.set_input_files("#chosen", {"name": "a.csv", "mimeType": "", "buffer": CSV.encode()})
    else:
        page.evaluate(
            """content => {
                const data = new DataTransfer();
                data.items.add(new File([content], "a.csv"));
                const event = new DragEvent("drop", {dataTransfer: data, bubbles: true});
                document.getElementById("drop").dispatchEvent(event);
            }""",
            CSV,
        )
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).locator("td.text")).to_have_text(TEXT)

    page.click("#table th button:has-text('text')")
    expect(rows.nth(0).locator("td.text")).to_have_text("=1+1")
    page.click("#table th button:has-text('text')")
    expect(page.locator("#table th[aria-sort=descending]")).to_have_text("text")

    page.fill("#find", "plot")
    expect(rows).to_have_count(2)
    page.fill("#find", "")
    with page.expect_download() as download:
        page.click("#download-csv")
    lines = saved(download)
    assert lines[0] == "line,text,label,probability,probability of neg,probability of pos"
    assert any(line.startswith("3,'=1+1,") for line in lines)  # no spreadsheet runs it
    with page.expect_download() as download:
        page.click("#download-jsonl")
    texts = [json.loads(line)["text"] for line in saved(download)]
    assert sorted(texts) == sorted([TEXT, "=1+1", OTHER])

    page.click("#table button.open >> nth=0")
    expect(page.locator("#words .word").first).to_be_visible()


def test_a_file_that_cannot_be_read_shows_the_error(opened):
    page = opened("#view=file")
    expect(page.locator("#model option")).to_have_count(2)
    page.set_input_files("#chosen", {"name": "a.csv", "mimeType": "", "buffer": b"a,b,c\n1,2,3\n"})
    expect(page.locator("#file-problem")).to_be_visible()
    expect(page.locator("#file-problem")).to_contain_text("cannot guess which column")
    assert [fault for fault in opened.faults if "422" not in fault] == []
    opened.faults.clear()  # a browser logs every answer of 400 and above
