"""A config as Notepad saves it: with a byte-order mark."""

from __future__ import annotations

from pathlib import Path

from commands import TABLES, mistake, ok


def test_a_config(tmp_path: Path) -> None:
    path = tmp_path / "shardwright.toml"
    path.write_text(TABLES, encoding="utf-8-sig")
    assert "strategy direct" in ok("plan", path, "first")


def test_a_mistake_in_it(tmp_path: Path) -> None:
    """Carets stand where they do without the mark."""
    path = tmp_path / "shardwright.toml"
    wrong = TABLES.replace('"x=2,y=3"', '"x=2,x=3"')
    path.write_text(wrong)
    plain = mistake("plan", path, "first")
    path.write_text(wrong, encoding="utf-8-sig")
    assert mistake("plan", path, "first") == plain
