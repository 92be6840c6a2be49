"""The user's line that an equation comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax

from shardwright.ir.program import Line

_OURS = str(Path(__file__).resolve().parent.parent)  # constraints stand there too
_JAX = str(Path(jax.__file__).resolve().parent)


class Lines:
    """Finds the innermost frame outside jax and this front end; answers are remembered."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Line | None]] = {}

    def of(self, equation: Any) -> Line | None:
        """Return the line of an equation; None if its source is not recorded."""
        traceback = getattr(equation.source_info, "traceback", None)
        if traceback is None:
            return None
        if id(traceback) not in self.known:
            self.known[id(traceback)] = (traceback, _line(traceback))
        return self.known[id(traceback)][1]


def _line(traceback: Any) -> Line | None:
    for frame in traceback.frames:
        if not frame.file_name.startswith((_JAX, _OURS, "<")):
            return Line(_shown(frame.file_name), frame.line_num)
    return None


def _shown(file: str) -> str:
    """Return the path from the current folder if it is in there, else the name of the file."""
    relative = os.path.relpath(file)
    return Path(file).name if relative.startswith("..") else relative
