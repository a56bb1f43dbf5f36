"""The explorer page in a real Chromium.

Every test also checks that the page sends requests only to its own server and logs nothing.
Without playwright, importing ``explorer_page`` skips a module of tests but would break a conftest,
so the fixtures import it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import chromium
from serve_process import Running, start_server

if TYPE_CHECKING:
    from explorer_page import Browser, Page


@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def server(folder: Path) -> Iterator[Running]:
    running = start_server(folder, "first", "bag", "--corpus", "corpus.txt", "--port", 0)
    yield running
    running.process.terminate()
    running.process.communicate()


@pytest.fixture
def opened(browser: "Browser", server: Running) -> "Iterator[Callable[..., Page]]":
    """Open the page; at the end, check its requests and its log."""
    contexts, faults, asked = [], [], set()

    def open_page(hash_: str = "", address: str = "", **options: object) -> "Page":
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.opened_faults = faults
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
def page(opened) -> "Page":
    from explorer_page import TEXT, expect

    page = opened(f"#view=explain&text={TEXT.replace(' ', '+')}")
    expect(page.locator("#words .word")).to_have_count(len(TEXT.split()))
    return page
