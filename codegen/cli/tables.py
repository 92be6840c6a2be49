"""Tables on standard output, as wide as the terminal or COLUMNS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# The width if the terminal's width is unknown, as in a log.
LOG_WIDTH = 120
WIDE = 120
"""The narrowest terminal in which tables have their optional columns."""

_COLOURS = {"ok": "green", "failed": "bold red", "skipped": "yellow"}


def console() -> Console:
    from rich.console import Console

    standard = Console()
    if standard.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        return standard
    return Console(width=LOG_WIDTH)


def is_wide() -> bool:
    """Return whether there is room for optional columns."""
    return console().width >= WIDE


def shown(verdict: str) -> str:
    """Return a verdict in its colour."""
    return f"[{_COLOURS[verdict]}]{verdict}[/]"
