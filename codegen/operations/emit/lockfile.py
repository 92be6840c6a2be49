"""Describe the changes between two versions of a program's `plan.json`: added and removed
communications.

Two communications match if collective, axes, type and bytes agree. Value names and line numbers are
ignored, because any edit above a communication changes them.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.codegen.partition.local.sizes import size_text

Row = Mapping[str, Any]
KEYS = ("op", "axes", "shape", "received", "times")


def changes(before: str, after: str) -> tuple[str, ...]:
    """Return one string per communication that differs between the texts `before` and `after`.
    Return none if `before` is not a program's `plan.json`."""
    old, new = _read(before), _read(after)
    if old is None or new is None:
        return ()
    said = tuple(_said(*_apart(old["communications"], new["communications"])))
    total = old["bytes_received"], new["bytes_received"]
    if total[0] == total[1]:
        return said
    was, now = map(size_text, total)
    return (f"the busiest device receives {now}, before {was}", *said)


def _read(text: str) -> dict[str, Any] | None:
    """Return the object in a `plan.json`, or None if it lacks the fields to compare."""
    try:
        found = json.loads(text)
        rows = found["communications"]
        whole = all(key in row for row in rows for key in (*KEYS, "bytes", "line"))
        return found if whole and type(found["bytes_received"]) is int else None
    except (ValueError, TypeError, KeyError):
        return None


def _apart(old: list[Row], new: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return the removed rows and the added rows. A row that only changes position is neither."""
    before, after = ([_key(row) for row in rows] for rows in (old, new))
    gone, more = list[Row](), list[Row]()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for _, a, b, c, d in (each for each in matcher.get_opcodes() if each[0] != "equal"):
        gone += old[a:b]
        more += new[c:d]
    moved = Counter(map(_key, gone)) & Counter(map(_key, more))
    return _without(gone, moved), _without(more, moved)


def _without(rows: list[Row], moved: Counter[str]) -> list[Row]:
    left, kept = moved.copy(), []
    for row in rows:
        key = _key(row)
        if left[key]:
            left[key] -= 1
        else:
            kept.append(row)
    return kept


def _key(row: Row) -> str:
    return json.dumps([row[key] for key in KEYS])


def _said(gone: list[Row], more: list[Row]) -> Iterator[str]:
    for rows, direction in ((more, "more"), (gone, "less")):
        alike: dict[str, list[Row]] = {}
        for row in rows:
            alike.setdefault(json.dumps([_key(row), row["line"]]), []).append(row)
        for same in alike.values():
            yield _sentence(same[0], len(same), direction)


def _sentence(row: Row, count: int, direction: str) -> str:
    op, axes = str(row["op"]).replace("_", "-"), ", ".join(row["axes"])
    size, times = size_text(row["received"]), row["times"]
    often = f", {times} times" if times > 1 else ""
    line = f", {row['line']}" if row["line"] else ""
    what = f"one {op} over {axes} of {size}"
    if count > 1:
        what = f"{count} {op}s over {axes} of {size} each"
    return f"{what}{often} {direction}{line}"
