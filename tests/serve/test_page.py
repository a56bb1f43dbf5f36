"""The explorer page in a real Chromium.

Every test also holds that the page asked nobody but its own server, and that its console is silent.
"""

import json
import os
import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from serve_process import Running, start_server

playwright = pytest.importorskip("playwright.sync_api")
Browser, Page, expect = playwright.Browser, playwright.Page, playwright.expect

pytestmark = pytest.mark.browser

TEXT = "the plot is not dull , but the ending was bad ."
OTHER = "the plot is very good ."
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        reason = "there is no Chromium; install Debian's package chromium"
        if os.environ.get("DCNN_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    with playwright.sync_playwright() as driver:
        # Its own sandbox needs rights that root in a container does not have.
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    running = start_server(folder, "first", "bag", "--corpus", "corpus.txt", "--port", 0)
    yield running
    running.process.terminate()
    running.process.communicate()


@pytest.fixture
def opened(browser: Browser, server: Running) -> Iterator[Callable[..., Page]]:
    """Open the page; in the end, check what it asked for and what it logged."""
    contexts, faults, asked = [], [], set()

    def open_page(hash_: str = "", address: str = "", **options: object) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.add(request.url.split("/")[2]))
        page.goto(f"{address or server.address}/{hash_}")
        return page

    open_page.faults = faults
    yield open_page
    for context in contexts:
        context.close()
    assert not faults
    assert {host.partition(":")[0] for host in asked} == {"127.0.0.1"}


@pytest.fixture
def page(opened) -> Page:
    page = opened(f"#view=explain&text={TEXT.replace(' ', '+')}")
    expect(page.locator("#words .word")).to_have_count(len(TEXT.split()))
    return page


def explanation(server: Running, text: str, **more: object) -> dict:
    body = json.dumps({"text": text, **more}).encode()
    with urllib.request.urlopen(f"{server.address}/v1/explain", body) as answer:
        return json.load(answer)["explanations"][0]


def signed(amount: float) -> str:
    return ("\u2212" if amount < 0 else "+") + f"{abs(amount):.2f}"


def shown_edges(page: Page) -> int:
    return page.locator("#graph .edge:not(.faint):not(.hushed)").count()


def test_typing_shows_label_probabilities_and_words(page, server):
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
        expect(button).to_have_text(word["word"] + signed(word["relevance"]))
        assert ("against" in button.get_attribute("class")) == (word["relevance"] < 0)


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
        seen = node["seen"][word["position"]]
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


def test_tabs_are_walked_with_arrows(page):
    page.focus("#tab-explain")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#compare")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#drop")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "tab-file"


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


def saved(download) -> list[str]:
    return Path(download.value.path()).read_text().splitlines()


CSV = f'text,who\n"{TEXT}",a\n=1+1,b\n{OTHER},c\n'


@pytest.mark.parametrize("way", ["choose", "drop"])
def test_a_file_comes_back_as_a_table(opened, way):
    page = opened("#view=file")
    expect(page.locator("#model option")).to_have_count(2)  # the page has begun
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


def test_a_file_that_cannot_be_read_is_told_why(opened):
    page = opened("#view=file")
    expect(page.locator("#model option")).to_have_count(2)
    page.set_input_files("#chosen", {"name": "a.csv", "mimeType": "", "buffer": b"a,b,c\n1,2,3\n"})
    expect(page.locator("#file-problem")).to_be_visible()
    expect(page.locator("#file-problem")).to_contain_text("cannot guess which column")
    assert [fault for fault in opened.faults if "422" not in fault] == []
    opened.faults.clear()  # a browser logs every answer of 400 and above


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


def test_a_comparison_has_a_link_too(opened):
    page = opened("#view=compare&first=good&second=very+bad&class=pos")
    expect(page.locator("#aligned .pair")).to_have_count(2)
    assert page.input_value("#second") == "very bad"
    assert page.input_value("#compare-class") == "pos"


def test_a_dead_server_is_told_and_its_return_noticed(opened, folder):
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
        opened.faults.clear()  # the browser's own words on a connection that failed


def test_markup_stays_text(opened):
    text = "<img src=x onerror=alert(1)> <b>good</b>"
    page = opened(
        "#view=explain&text=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%20%3Cb%3Egood%3C/b%3E"
    )
    expect(page.locator("#text")).to_have_value(text)
    expect(page.locator("#words .word").first).to_be_visible()
    assert page.locator("main img, main .word b").count() == 0


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


def test_the_label_does_not_wait_for_the_explanation(opened):
    page = opened("#view=explain&text=")
    expect(page.locator("#problem")).to_contain_text("Type a sentence")
    waiting = []
    page.route("**/v1/explain", lambda route: waiting.append(route))  # answered when we say so
    page.fill("#text", OTHER)
    expect(page.locator("#problem")).to_have_text("Waiting for the server\u2026")
    expect(page.locator("#verdict .label")).to_be_visible()
    expect(page.locator("#words")).to_be_hidden()
    waiting[0].continue_()
    expect(page.locator("#words .word")).to_have_count(len(OTHER.split()))
    expect(page.locator("#problem")).to_be_hidden()


def test_back_leads_to_the_view_before(page):
    page.click("#tab-compare")
    expect(page.locator("#compare")).to_be_visible()
    page.go_back()
    expect(page.locator("#explain")).to_be_visible()
    expect(page.locator("#text")).to_have_value(TEXT)


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


def test_a_model_without_a_graph_still_predicts(page):
    page.select_option("#model", "bag")
    expect(page.locator("#problem")).to_contain_text("nbow has no feature graph")
    expect(page.locator("#verdict .label")).to_be_visible()
    expect(page.locator("#graph")).to_be_hidden()


def test_a_key_is_asked_for_once(opened, running):
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


def test_a_keystroke_is_answered_at_once(page):
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
