"""The explorer page as tests ask for it, and what it ought to show."""

import json
import urllib.request

import pytest

from serve_process import Running

playwright = pytest.importorskip("playwright.sync_api")
Browser, Page, expect = playwright.Browser, playwright.Page, playwright.expect

TEXT = "the plot is not dull , but the ending was bad ."
OTHER = "the plot is very good ."


def explanation(server: Running, text: str, **more: object) -> dict:
    body = json.dumps({"text": text, **more}).encode()
    with urllib.request.urlopen(f"{server.address}/v1/explain", body) as answer:
        return json.load(answer)["explanations"][0]


def signed(amount: float) -> str:
    return ("\u2212" if amount < 0 else "+") + f"{abs(amount):.2f}"


def shown_edges(page: Page) -> int:
    return page.locator("#graph .edge:not(.faint):not(.filtered)").count()
