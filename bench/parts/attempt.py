"""Rows of results: the measurements or the error of one case, printed as lines of JSON for
`run`."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""A row. It has the keys `part`, `name`, `ok` (None if the case was left out) and `seconds`, and
either measurements or an `error`."""

Job = tuple[str, Callable[[], Row | None]]
"""The name of a case, and the function that runs it and returns its measurements."""

MARK = "@"
"""The first character of a line that contains a row."""

LONGEST = 300
"""The most characters of an error to keep."""


class LeftOutError(Exception):
    """Raised if a case cannot run here; the message gives the reason."""


def attempt_all(part: str, jobs: Iterable[Job], names: tuple[str, ...] = ()) -> None:
    """Run the jobs whose names begin with one of `names`, or all jobs, and print a row for each."""
    for name, job in jobs:
        if not names or name.startswith(names):
            attempt(part, name, job)


def attempt(part: str, name: str, job: Callable[[], Row | None], **said: Any) -> None:
    """Run a job and print its row, which includes `said`. First print a row without a result, which
    identifies a case that hangs."""
    named = {"part": part, "name": name, **said}
    _say(named)
    start = time.perf_counter()
    row: Row
    try:
        row = {"ok": True, **(job() or {})}
    except LeftOutError as error:
        row = {"ok": None, "error": str(error)}
    except (Exception, SystemExit) as error:
        row = {"ok": False, "error": _described(error)}
    seconds = round(time.perf_counter() - start, 2)
    _say({**named, "seconds": seconds, **row})


def _described(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error)[:LONGEST]
    return f"{type(error).__name__}: {text} at {Path(frame.filename).name}:{frame.lineno}"


def _say(row: Row) -> None:
    print(f"\n{MARK}{json.dumps(row)}", flush=True)


def rows_of(lines: Iterable[str]) -> tuple[list[Row], list[Row]]:
    """Read the output of a process. Return the rows of cases that ended, and the rows of cases that
    started but did not end."""
    ended: list[Row] = []
    begun: dict[str, Row] = {}
    for line in lines:
        if not line.startswith(MARK + "{"):
            continue
        try:
            row = json.loads(line[len(MARK) :])
        except json.JSONDecodeError:  # The process was killed while printing.
            continue
        if "ok" in row:
            begun.pop(row["name"], None)
            ended.append(row)
        else:
            begun[row["name"]] = row
    return ended, list(begun.values())
