"""The result of a verification: one report per bundle and backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class Report:
    """The verdict on one emitted module.

    `skipped` means that a package named in `detail` is not installed, or that the module is too
    large to run. `detail`: the fault of a `failed` module; for `ok`, the checks that replaced a
    plain run, if any. `checks`: the names of the checks that passed, in order.
    """

    name: str
    backend: str
    devices: int
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0
    checks: tuple[str, ...] = ()


BY_DEFINITION = "ragged all-to-all by its definition"
"""The name of the check, and the detail, for a module whose collective XLA lacks on CPU. The
module ran with an implementation that follows the collective's documentation."""

Progress = Callable[[int, int, Report | None], None]
"""Called as progress(done, total, report): first with (0, total, None), then after each report."""
