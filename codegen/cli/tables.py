"""Tables on standard output, as wide as the terminal is, or as COLUMNS says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Where nobody says how wide the paper is, as in a log.
LOG_WIDTH = 120
WIDE = 120
"""Columns from which on tables say more."""

_COLOURS = {"ok": "green", "failed": "bold red", "skipped": "yellow"}


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    standard = Console()
    if standard.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        return standard
    return Console(width=LOG_WIDTH)


def is_wide() -> bool:
    """Return whether there is room for columns that are good to know."""
    return console().width >= WIDE


def shown(verdict: str) -> str:
    """Return a verdict in its colour."""
    return f"[{_COLOURS[verdict]}]{verdict}[/]"


def ratio(moved: int, bound: int) -> str:
    """Return bytes moved over the bound; nothing to move is the bound itself."""
    return f"{moved / bound:.3f}" if bound else "1.000"
