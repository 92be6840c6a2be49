"""The result of a verification: one report for each bundle and backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class Report:
    """The verdict on one emitted module.

    `skipped` means that a package named in `detail` is not installed. For `failed`, `detail` states
    the fault; for `ok`, how the run differed from simply running the module, if it did. `checks`
    are the names of the checks that passed, in order.
    """

    name: str
    backend: str
    devices: int
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0
    checks: tuple[str, ...] = ()


BY_DEFINITION = "ragged all-to-all by its definition"
"""The check, and the detail, of a module whose collective CPU lacks: an implementation of the
collective's documentation stood in for it."""

Progress = Callable[[int, int, Report | None], None]
"""Called as progress(done, total, report): first with (0, total, None), then after each report."""
