"""The names and reasons of communications in a program's module."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.ir.errors import InternalError

COMMENT = re.compile(r" *# \[C(\d+)\] ")
MORE = re.compile(r" *#   (.*)")
FUNCTION = re.compile(r"def (\w+)\(")
TARGET = re.compile(r"( *)(\w+) = ")
COLLECTIVE = re.compile(r"lax\.(all_gather|all_to_all|p\w+)\(|\.product\(")
TYPE = re.compile(r" *# \w+\[")


@dataclass(frozen=True)
class ModuleRow:
    """A communication in a module: the name of its result, the function that makes it, whether a
    comment states its type, and its reason in the names of that function."""

    name: str
    function: str
    typed: bool
    reason: str


def module_rows(module: str) -> dict[int, ModuleRow]:
    """Return the communications of a module by number, from the comments before them."""
    found: dict[int, ModuleRow] = {}
    function, lines = "", module.splitlines()
    for number, line in enumerate(lines):
        if match := FUNCTION.match(line):
            function = match[1]
        if not (comment := COMMENT.match(line)):
            continue
        said, after = [line], number + 1
        while more := MORE.match(lines[after]):
            said.append(more[1])
            after += 1
        reason = " ".join(said).partition(": ")[2]
        until = itertools.takewhile(
            lambda line: not COMMENT.match(line), itertools.islice(lines, after, None)
        )
        found[int(comment[1])] = _row([*until], function, reason)
    return found


def _row(lines: Sequence[str], function: str, reason: str) -> ModuleRow:
    """Return the row of the first collective in lines, or of the first statement."""
    starts = [number for number, line in enumerate(lines) if TARGET.match(line)]
    ends = [*starts[1:], len(lines)]
    texts = ["\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    at = next((number for number, text in enumerate(texts) if COLLECTIVE.search(text)), 0)
    target = TARGET.match(lines[starts[at]])
    if target is None:
        raise InternalError(f"no statement follows the comment on {reason!r}")
    inner = (f"{target[1]} ", f"{target[1]})", f"{target[1]}]")
    rest = itertools.takewhile(lambda line: line.startswith(inner), lines[starts[at] + 1 :])
    before = lines[starts[at] - 1] if starts[at] else ""
    typed = "  # " in [lines[starts[at]], *rest][-1] or TYPE.match(before) is not None
    return ModuleRow(target[2], function, typed, reason)
