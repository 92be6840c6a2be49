"""The explorer in a real browser: Chromium of the system, driven by Playwright.

Skipped where one is missing; `test_explorer_script.py` runs the script without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_explorer import STEPS, TRANSPOSE

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.show.explorer import explorer
from shardwright.codegen.show.matmul_explorer import matmul_explorer

FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


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
    assert "Choose a device or a tile" in page.locator("#details").inner_text()
    assert page.evaluate(FITS), "the page is wider than the screen"


def test_steps(page: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(explorer(STEPS, "steps", "v5e:2x4"))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("#step-text").inner_text().startswith("step 1 of 3")
    page.keyboard.press("ArrowRight")
    assert page.locator("#step-text").inner_text().startswith("step 2 of 3")
    page.get_by_role("button", name="Next →").click()
    assert page.get_by_role("button", name="Next →").is_disabled()
    assert "Links of v5e:2x4" in page.locator("#links").inner_text()


def test_on_a_phone(page: Any, tmp_path: Path) -> None:
    """Nothing covers the page until something is chosen; then a sheet does, which can be closed."""
    (tmp_path / "page.html").write_text(explorer(TRANSPOSE, "transpose"))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((tmp_path / "page.html").as_uri())
    details = page.locator("#details-section")
    assert not details.is_visible()
    page.locator(".device").nth(1).click()
    assert details.bounding_box()["height"] <= 0.39 * 844
    page.locator("#close").click()
    assert not details.is_visible()
    heads = page.locator(".mesh").first.locator("th").all_inner_texts()
    assert heads == ["y=0", "y=1", "y=2", "x=0", "x=1"]


def test_a_matmul(page: Any, tmp_path: Path) -> None:
    """The page begins with an operand that moves; one that stays has no empty sections."""
    sides = ((64, 64), "P('i')"), ((64, 32), "P('i')"), "P('i')"
    plan = plan_matmul(sw.Matmul("f32", *sides, mesh="i=8"), loop="both", topology="v5e:2x4")
    (tmp_path / "page.html").write_text(matmul_explorer(plan, "up", "v5e:2x4"))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("select").first.input_value() == "1"
    assert page.locator("#step-text").inner_text().startswith("step 1 of 7")
    assert page.evaluate(FITS), "the page is wider than the screen"
    page.locator("select").first.select_option("0")
    assert page.locator("#step-text").inner_text() == "no steps: every device has what it needs"
    for section in ("devices", "tensor", "links"):
        assert not page.locator(f"#{section}-section").is_visible()
