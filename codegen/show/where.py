"""Names for intermediate values of a nested split, level by level."""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from shardwright.codegen.show.notation import text
from shardwright.ir.algebra.index import Index, Value, extent_symbol

# Names in `ir/layout.py` for a nested split, and their form in a derivation.
LETTERS = {"chunk": "C", "offset": "o", "digit": "s", "rest": "r", "length": "L"}


@dataclass
class Where:
    """Names for the intermediate values of a nested split, `name = value`, by level."""

    levels: tuple[Value, ...] = ()
    suffix: str = ""
    lines: list[tuple[str, Value]] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)

    def let(self, name: str, value: Value) -> Value:
        """Return a symbol for a value, numbered by its level; numbers and symbols are returned
        unchanged."""
        value = sympy.sympify(value)
        level = self.calls[name] = self.calls.get(name, 0) + 1
        if name not in LETTERS or not value.args:
            return value
        unique = f"{LETTERS[name]}{self.suffix}{level}"
        self.lines.append((unique, value))
        if name in ("chunk", "length"):
            return extent_symbol(unique)
        return Index(unique, self.levels[level - 1] if name == "digit" else sympy.oo)


def where_lines(lets: tuple[Where, ...], results: list[str]) -> tuple[str, ...]:
    """Return the lines that the results depend on, in order."""
    lines = [line for where in lets for line in where.lines]
    used = " ".join(results)
    kept: list[str] = []
    for name, value in reversed(lines):
        if name in _words(used):
            kept.append(f"{name} = {text(value)}")
            used += " " + text(value)
    return tuple(reversed(kept))


def _words(line: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in line).split())
