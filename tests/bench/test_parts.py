"""Parts of a check: a hang loses one case, and what is known is written after each part."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from places import ROOT

from bench.parts.report import Report, chosen, printed
from bench.parts.run import Command, Part
from bench.parts.table import Page, Section, merged

PAGE = Page(
    "Planted",
    "Parts of a test.",
    (
        Section("hangs", "In pieces.", {"size": "pieces"}),
        Section("fails"),
        Section("after", summary=lambda rows: f"{len(rows)} summed up."),
    ),
)
ATTEMPTS = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from bench.parts.attempt import LeftOutError, attempt, attempt_all
"""
HANGS = """
attempt("hangs", "first", lambda: {"size": 3})
attempt("hangs", "second", lambda: time.sleep(60))
"""
FAILS = """
def wrong(): raise ValueError("a | b is wrong")
def leaves_out(): raise LeftOutError("too large")
jobs = ("wrong", wrong), ("large", leaves_out), ("not asked for", wrong)
attempt_all("fails", jobs, ("wr", "la"))
print("about to end", flush=True)
sys.exit(3)
"""
AFTER = """
text = open(sys.argv[1]).read()
assert "| first | 3 |" in text and "no end within 0.6 s (hangs: second)" in text, text
attempt("after", "reads the table", lambda: None)
"""


def part(name: str, text: str, *words: str, seconds: float = 30) -> Part:
    command = Command(f"{name} itself", (sys.executable, "-c", ATTEMPTS + text, *words))
    return Part(name, (command,), seconds)


def test_a_hang_loses_one_case_and_each_part_is_written(tmp_path: Path) -> None:
    report = Report(tmp_path, "kept", PAGE, {"": "a test", "on": "today"})
    parts = [
        part("hangs", HANGS, seconds=0.6),
        part("fails", FAILS),
        part("after", AFTER, str(tmp_path / "kept.md")),
    ]
    assert not report.run(parts)
    rows = json.loads((tmp_path / "kept.json").read_text())["rows"]
    assert [(row["name"], row["ok"]) for row in rows] == [
        *(("first", True), ("second", False)),
        *(("wrong", False), ("large", None), ("fails itself", False)),
        ("reads the table", True),
    ]
    assert rows[4]["error"] == "exit status 3"
    assert rows[4]["log"] == ["about to end"]
    text = (tmp_path / "kept.md").read_text()
    assert text.startswith("# Planted\n\nParts of a test.\n\na test; on today.\n\n")
    assert "- **hangs**: 1 of 2 right.\n" in text
    assert "- **fails**: 0 of 2 right, 1 left out.\n" in text
    assert "- **after**: 1 of 1 right. 1 summed up.\n" in text
    assert "- ValueError: a / b is wrong at <string>:" in text
    assert text == printed(PAGE, tmp_path / "kept.json")


def test_an_exit_can_be_the_row(tmp_path: Path) -> None:
    """A fault that is planted has to be found: another exit status is wrong."""
    words = (sys.executable, "-c", "raise SystemExit(9)")
    both = [Command("found", words, exits=9, counts=True), Command("clean", words, counts=True)]
    report = Report(tmp_path, "kept", PAGE, {})
    assert not report.run([Part("fails", tuple(both), 30)])
    rows = json.loads((tmp_path / "kept.json").read_text())["rows"]
    assert [(row["name"], row["ok"]) for row in rows] == [("found", True), ("clean", False)]


def test_ranks_are_one_row() -> None:
    """Figures of ranks become ranges; one wrong rank makes a case wrong."""
    rows = [
        {"part": "p", "name": "a", "rank": rank, "ok": rank != 1, "us": us}
        for rank, us in enumerate((3, 5, 4))
    ]
    alone = {"part": "p", "name": "b", "ok": True}
    merge = {"part": "p", "name": "a", "ranks": 3, "ok": False, "us": "3 to 5"}
    assert merged([*rows, alone]) == [merge, alone]


def test_unknown_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part("one", ""), part("two", "")]
    monkeypatch.setenv("PARTS", "two")
    assert chosen(parts, "PARTS") == parts[1:]
    monkeypatch.setenv("PARTS", "two,three")
    with pytest.raises(SystemExit, match="PARTS: unknown part 'three': expected one, two"):
        chosen(parts, "PARTS")
