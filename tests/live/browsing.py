"""A real browser for tests: Debian's Chromium, driven by playwright, without a picture on a screen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

CHROMIUM = Path("/usr/bin/chromium")
LIMIT_MS = 30_000  # for a machine with much else to do
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-extensions",
    "--disable-software-rasterizer",
    "--force-prefers-reduced-motion",
    "--in-process-gpu",
)


@contextmanager
def chromium() -> Iterator:
    """The browser; the test is skipped where there is none."""
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM}: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A page, and what it complained about and asked for."""

    def __init__(self, browser, **options) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.complaints: list[str] = []
        self.urls: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.urls.append(request.url))

    def _on_console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def wait_until(self, claim: Callable[[], object]) -> None:
        """Look again until it is so. The page's own policy forbids the browser to do that by itself."""
        end = monotonic() + LIMIT_MS / 1000
        while not claim():
            assert monotonic() < end, "it never became so"
            self.page.wait_for_timeout(100)


@contextmanager
def window(browser, url: str, **options) -> Iterator[Window]:
    """A new window at this URL. Nothing may be left on its console."""
    opened = Window(browser, **{"viewport": {"width": 1280, "height": 860}, **options})
    try:
        opened.page.goto(url)
        yield opened
    finally:
        opened.context.close()
    assert opened.complaints == []
