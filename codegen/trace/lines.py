"""Find the line of the user's code (rather than of a library) for an equation, and the user's names
for its values."""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import jax

from shardwright.codegen.trace.words import Frames, Phrase, UserWords
from shardwright.ir.program import Line

_ROOT = Path(__file__).resolve().parents[2]
_OURS = (f"{_ROOT / 'codegen'}{os.sep}", f"{_ROOT / 'ir'}{os.sep}")  # such as `constrain`
_JAX = tuple(str(path.parent) for path in (Path(jax.__file__), Path(jax.__file__).resolve()))
_FRONT = str(_ROOT / "codegen" / "partition" / "tracing.py")  # the code that calls it is the user's
INSTALLED = "-packages"
"""The part of a path that marks a folder of installed packages."""
_PYTHON = sysconfig.get_path("stdlib") + os.sep


class Lines:
    """Find the line of an equation: that of the innermost frame outside JAX, this front end and
    installed packages, or else of the innermost frame in an installed package. Results are
    cached."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Line | None, Frames]] = {}
        self.words = UserWords()
        self.around: Line | None = None  # the line of the call that is being inlined
        self.outside: Frames = ()  # the user's frames around that call

    def of(self, equation: Any) -> Line | None:
        """Return the line of an equation, or of the call that contains it, or None if it is
        unknown.

        If JAX cached the trace for another caller, the frames of this caller are missing.
        """
        return self._found(equation)[0] or self.around

    def said(self, equation: Any) -> Phrase:
        return self.words.of(self.frames(equation))

    def frames(self, equation: Any) -> Frames:
        """Return the user's frames of an equation, innermost first, including the frames of calls
        that are being inlined."""
        found, outside = self.own_frames(equation), self.outside
        return found if found[-len(outside) :] == outside else (*found, *outside)

    def own_frames(self, equation: Any) -> Frames:
        """Return the user's frames of an equation, innermost first."""
        return self._found(equation)[1]

    @contextlib.contextmanager
    def inside(self, equation: Any) -> Iterator[None]:
        """Append the frames of an equation to those of all equations that are read in this
        context."""
        outside, self.outside = self.outside, self.frames(equation)
        yield
        self.outside = outside

    def _found(self, equation: Any) -> tuple[Line | None, Frames]:
        traceback = getattr(equation.source_info, "traceback", None)
        if traceback is None:
            return None, ()
        if id(traceback) not in self.known:
            self.known[id(traceback)] = (traceback, _line(traceback), tuple(_own(traceback)))
        return self.known[id(traceback)][1:]


def _line(traceback: Any) -> Line | None:
    frames = itertools.takewhile(lambda each: each.file_name != _FRONT, traceback.frames)
    known = [
        (line, is_installed(frame.file_name))
        for frame in frames
        if (line := user_line(frame.file_name, frame.line_num)) is not None
    ]
    own = (line for line, is_of_a_package in known if not is_of_a_package)
    return next(own, known[0][0] if known else None)


def _own(traceback: Any) -> Iterator[tuple[CodeType, int]]:
    """Yield the frames of the user's own code in the traced function, innermost first."""
    for code, instruction in zip(*traceback.raw_frames(), strict=True):
        if code.co_filename == _FRONT:
            return
        if _is_own(code.co_filename):
            yield code, instruction


@functools.cache
def _is_own(file: str) -> bool:
    """Return whether a file is the user's own: not part of an installed package, Python, JAX or
    shardwright. The input of an interactive session counts as the user's own."""
    if file.startswith("<"):
        return bool(linecache.getlines(file))
    return not is_installed(file) and user_line(file, 0) is not None


@functools.cache
def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package, because it is in a folder of
    `sys.path` with the records of an installer."""
    return INSTALLED in file or any(
        file.startswith(os.path.join(folder, "")) and any(Path(folder).glob("*.dist-info"))
        for folder in sys.path
        if folder
    )


def user_line(file: str, number: int) -> Line | None:
    """Return the source line at a line number of a file, or None for files of JAX, shardwright or
    Python itself, and for text that is not in a file, such as `<stdin>`."""
    if file.startswith((*_JAX, *_OURS, "<")):
        return None
    if file.startswith(_PYTHON) and INSTALLED not in file:
        return None
    return Line(_shown(file), number)


def _shown(file: str) -> str:
    """Return the path of a file relative to the current folder, or only its name if it is outside
    that folder."""
    relative = os.path.relpath(file)
    return Path(file).name if relative.startswith("..") else relative
