"""The explorer in a real browser: Chromium of the system, driven by Playwright.

Skipped where one is missing; `test_explorer_script.py` runs the script without a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_explorer import STEPS, TRANSPOSE

from shardwright.codegen.show.explorer import explorer

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


def test_devices_and_tiles(page: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(explorer(TRANSPOSE, "transpose"))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator(".device").count() == 6
    assert page.locator(".tile").count() == 16
    page.locator(".device").nth(1).click()
    assert "Device 1 at x=0, y=1" in page.locator("#details").inner_text()
    page.locator(".tile").nth(1).focus()
    page.keyboard.press("Enter")
    assert "Tile [2, 3) x [0, 2)" in page.locator("#details").inner_text()
    page.keyboard.press("Escape")
    assert "Nothing is chosen" in page.locator("#details").inner_text()
    across = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(across), "the page is wider than the screen"


def test_steps(page: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(explorer(STEPS, "steps", "v5e:2x4"))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("#step-text").inner_text().startswith("step 1 of 3")
    page.keyboard.press("ArrowRight")
    assert page.locator("#step-text").inner_text().startswith("step 2 of 3")
    page.get_by_role("button", name="Next →").click()
    assert page.get_by_role("button", name="Next →").is_disabled()
    assert "Links of v5e:2x4" in page.locator("#links").inner_text()
