"""A Chromium for tests of pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


@contextmanager
def chromium() -> Iterator[object]:
    """A browser that was started; without one the test is skipped, or fails where CI asks for it.

    Without playwright, importing it here skips the test.
    """
    playwright = pytest.importorskip("playwright.sync_api")
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
