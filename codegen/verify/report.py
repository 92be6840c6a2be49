"""The result of a verification: one report for each bundle and backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class Report:
    """The verdict on one emitted module.

    `skipped` means only that something is not installed; `detail` names it. `failed` says in
    `detail` what is wrong; `ok` says there what was run, if it was not simply the module itself.
    `checks` are the names of the checks that were made and passed, in order.
    """

    name: str
    backend: str
    devices: int
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0
    checks: tuple[str, ...] = ()


BY_DEFINITION = "ragged all-to-all by its definition"
"""The check, and the detail, of a module whose collective CPU does not have: something that does
what the collective is documented to do stood in for it."""

Progress = Callable[[int, int, Report | None], None]
"""Called as progress(done, total, report): first with (0, total, None), then after each report."""
