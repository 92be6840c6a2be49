"""Statements of a step, and how they print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardwright.codegen.emit.python_text import INDENT, WIDTH

OwnName = Literal["_number", "_groups", "_permuted", "EMPTY"]


@dataclass(frozen=True)
class Statement:
    """`x = function(arguments)`, or `x = x` without a function; `uses`: the module's own functions
    and constants that stand in the arguments."""

    function: str
    arguments: tuple[str, ...]
    uses: tuple[OwnName, ...] = ()

    def lines(self, name: str) -> list[str]:
        """Return the statement with another name in the place of the first `x`."""
        if not self.function:
            return [f"{name} = x"]
        return called(f"{name} = {self.function}", list(self.arguments))


def called(function: str, arguments: list[str]) -> list[str]:
    """Return a call for one indentation, as a formatter breaks it."""
    room = WIDTH - len(INDENT)
    joined = ", ".join(arguments)
    if len(f"{function}({joined})") <= room:
        return [f"{function}({joined})"]
    if len(INDENT + joined) <= room:
        return [f"{function}(", INDENT + joined, ")"]
    return [f"{function}(", *(f"{INDENT}{argument}," for argument in arguments), ")"]
