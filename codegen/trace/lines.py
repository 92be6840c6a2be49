"""The user's line of an equation, as opposed to a library's."""

from __future__ import annotations

import itertools
import os
import sysconfig
from pathlib import Path
from typing import Any

import jax

from shardwright.ir.program import Line

_ROOT = Path(__file__).resolve().parents[2]
_OURS = (f"{_ROOT / 'codegen'}{os.sep}", f"{_ROOT / 'ir'}{os.sep}")  # constraints are there too
_JAX = str(Path(jax.__file__).resolve().parent)
_FRONT = str(_ROOT / "codegen" / "partition" / "tracing.py")  # frames around it call us
INSTALLED = "-packages"
"""Parts of paths that mark folders of installed packages."""
_PYTHON = sysconfig.get_path("stdlib") + os.sep


class Lines:
    """Finds the innermost frame outside jax, this front end and installed packages, or else of one
    of these packages; cached."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Line | None]] = {}
        self.around: Line | None = None  # the line of the inlined call

    def of(self, equation: Any) -> Line | None:
        """Return the line of an equation, or of the call that contains it; None if unknown.

        Traces that jax cached for another caller lack the user's line.
        """
        traceback = getattr(equation.source_info, "traceback", None)
        if traceback is None:
            return self.around
        if id(traceback) not in self.known:
            self.known[id(traceback)] = (traceback, _line(traceback))
        return self.known[id(traceback)][1] or self.around


def _line(traceback: Any) -> Line | None:
    frames = itertools.takewhile(lambda each: each.file_name != _FRONT, traceback.frames)
    known = [
        (line, INSTALLED in frame.file_name)
        for frame in frames
        if (line := user_line(frame.file_name, frame.line_num)) is not None
    ]
    own = (line for line, is_installed in known if not is_installed)
    return next(own, known[0][0] if known else None)


def user_line(file: str, number: int) -> Line | None:
    """Return a source line, unless it is jax's, ours or Python's own."""
    if file.startswith((_JAX, *_OURS, "<")):
        return None
    if file.startswith(_PYTHON) and INSTALLED not in file:
        return None
    return Line(_shown(file), number)


def _shown(file: str) -> str:
    """Return the path relative to the current folder if it is inside, else the file name."""
    relative = os.path.relpath(file)
    return Path(file).name if relative.startswith("..") else relative
