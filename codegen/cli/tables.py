"""Tables on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Where nobody says how wide the paper is, as in a log.
LOG_WIDTH = 120

_COLOURS = {"ok": "green", "failed": "bold red", "skipped": "yellow"}


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    standard = Console()
    return standard if standard.is_terminal else Console(width=LOG_WIDTH)


def shown(verdict: str) -> str:
    """Return a verdict in its colour."""
    return f"[{_COLOURS[verdict]}]{verdict}[/]"


def ratio(moved: int, bound: int) -> str:
    """Return bytes moved over the bound; nothing to move is the bound itself."""
    return f"{moved / bound:.3f}" if bound else "1.000"
