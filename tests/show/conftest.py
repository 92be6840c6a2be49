"""A browser for the pages of the explorer: Chromium of the system, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage")  # as containers need it
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright"
    )
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"needs a browser: none of {', '.join(NAMES)} is installed")
    with driver.sync_playwright() as playwright:
        try:
            opened = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        except driver.Error as error:
            pytest.skip(f"{path} does not start here: {error}")
        yield opened
        opened.close()


@pytest.fixture(params=["desk", "phone", "dark"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page that fails for whatever it prints on the console, and has no network."""
    opened = browser.new_page(
        viewport=PHONE if request.param == "phone" else DESK,
        has_touch=request.param == "phone",
        color_scheme="dark" if request.param == "dark" else "light",
        offline=True,
    )
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    opened.close()
    assert said == []
