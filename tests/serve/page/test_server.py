"""What the page makes of its server: one that dies, asks for a key, or lists its endpoints."""

import json
import urllib.request

import pytest

from explorer_page import OTHER, expect
from serve_process import start_server

pytestmark = pytest.mark.browser


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
