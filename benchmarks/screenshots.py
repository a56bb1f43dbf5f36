"""The screenshots of docs/pictures and the graph of the README, of the demo's model.

Run by ``make screenshots``, which trains ``demo-model`` if it is not there; needs Chromium.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from dcnn.data.corpora.opinions import read_opinions

DOCS = Path(__file__).parent.parent / "docs"
TEXT = "The plot is dull, but the acting is superb."
WIDE, PHONE, NARROW = (1280, 960), (390, 1440), (860, 663)
DCNN = (sys.executable, "-m", "dcnn")


def main() -> None:
    """Draw the graph, export the page, start a server, and take all screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("demo-model"))
    model = parser.parse_args().model
    if not model.exists():
        subprocess.run([*DCNN, "demo", "--out", model], check=True)
    subprocess.run([*DCNN, "explain", model, TEXT, "--out", DOCS / "feature-graph.svg"], check=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        folder = Path(scratch)
        for split in ("train", "test"):
            write(folder / f"opinions-{split}.csv", split)
        page = folder / "demo.html"
        subprocess.run([*DCNN, "export", model, "--out", page], check=True)
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        one_html_file(browser, page.as_uri())
        corpus = folder / "opinions-train.csv"
        server = subprocess.Popen(
            [*DCNN, "serve", f"demo-model={model}", "--corpus", corpus, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            lines = server.stdout or ()
            found = next(filter(None, (re.search(r"on (http://\S+)", line) for line in lines)))
            explorer(browser, found[1], folder / "opinions-test.csv")
        finally:
            server.terminate()
            server.wait()
        browser.close()


def write(path: Path, split: str) -> None:
    """A part of the built-in corpus as CSV."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("text", "label"))
        writer.writerows((one.text, one.label) for one in read_opinions()[split])


def open_page(browser: Browser, address: str, size: tuple[int, int], dark: bool = False) -> Page:
    """A page in a window of this size."""
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page.goto(address)
    return page


def save(page: Page, name: str) -> None:
    """Take the screenshot, without the pointer and the focus."""
    page.wait_for_timeout(800)  # fonts, transitions, the redrawn graph
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.screenshot(path=DOCS / "pictures" / f"{name}.png")
    page.close()


def explorer(browser: Browser, address: str, labelled: Path) -> None:
    """The page of the server: a pinned n-gram, an open node, a phone, a file with labels."""
    for name, size in (("explorer", WIDE), ("explorer-dark", WIDE), ("explorer-phone", PHONE)):
        page = open_page(browser, f"{address}#text={TEXT}", size, dark=name == "explorer-dark")
        ngram = page.locator("#graph .ngram-node", has_text="but")
        if name != "explorer-phone":
            ngram.click()
        if name == "explorer-dark":
            page.click("#details .expand")
            page.locator("#graph .disc-node").nth(1).click()
        save(page, name)
    page = open_page(browser, f"{address}#view=file", WIDE)
    page.wait_for_function("() => document.getElementById('about-name').textContent")
    page.set_input_files("#chosen", labelled)
    page.select_option("#kind", "errors")
    page.fill("#threshold", "90")
    save(page, "explorer-file")


def one_html_file(browser: Browser, address: str) -> None:
    """The page of ``dcnn export``."""
    page = open_page(browser, address, NARROW)
    page.fill("textarea", TEXT)
    save(page, "one-html-file")


if __name__ == "__main__":
    main()
