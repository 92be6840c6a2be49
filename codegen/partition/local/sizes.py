"""Numbers of bytes as text."""

from __future__ import annotations


def size_text(size: int) -> str:
    """Format a number of bytes with a binary unit, such as `1.5 MiB`."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} B"
