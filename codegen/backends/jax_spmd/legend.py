"""The legend of a module: what its comments and the names of its values mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from shardwright.codegen.text.python_text import INDENT

START = (
    "`program(mesh)` is the function of whole arrays, jitted. Shapes in the code are those of one",
    "device. Comments number communications as in `plan.json`, and give the types of whole values.",
)
SPLIT = re.compile(r"# (\w+\[[\d,]*?(\d+)@(\w+)(?:@(\w+))?[^\]]*\])")
"""Matches the first split dimension of a type in a comment."""
TERMS = {
    "sum": "the devices along {} hold summands",
    "max": "the maximum over the devices along {} is the value",
    "min": "the minimum over the devices along {} is the value",
}
SUFFIXES = {
    "whole": "x, gathered",
    "gathered": "x, gathered but still split",
    "part": "the slice of x that this device needs",
    "turned": "x, split along another dimension",
    "moved": "x, with its shards on other devices",
    "reduced": "x, reduced over devices that held terms of it",
    "term": "x on one of the devices that hold it, 0 on the others",
}
"""What the suffix of a name says, by suffix."""


def legend(lines: Sequence[str], suffixes: Collection[str]) -> list[str]:
    """Return the lines that explain the comments and names in `lines`. `suffixes`: those of names
    of values whose layout changes."""
    entries = [*_comments("\n".join(lines)), *_names("\n".join(lines), suffixes)]
    wide = max((len(entry) for entry, _ in entries), default=0)
    return [*START, *(f"{INDENT}{entry.ljust(wide)}  {said}" for entry, said in entries)]


def _comments(text: str) -> Iterator[tuple[str, str]]:
    found = sorted(SPLIT.finditer(text), key=lambda each: len(each[1]))
    if one := next((each for each in found if not each[4]), None):
        yield one[1], f"axis {one[3]} splits dimension {_dimension(one)}"
    if two := next((each for each in found if each[4]), None):
        said = f"axis {two[3]} and then axis {two[4]} split dimension {_dimension(two)}"
        yield two[1], said
    for kind, said in TERMS.items():
        if terms := re.search(rf"# .*(terms of a {kind} over (\w+(?:, \w+)*))", text):
            yield terms[1], said.format(terms[2])


def _dimension(found: re.Match[str]) -> int:
    return found[0].partition("@")[0].count(",")


def _names(text: str, suffixes: Collection[str]) -> Iterator[tuple[str, str]]:
    if re.search(r"^ *d_\w+ = ", text, re.MULTILINE):
        yield "d_x", "the gradient of x"
    if re.search(r"^ *bwd_\w+ = ", text, re.MULTILINE):
        yield "bwd_x_mul", "another value of the backward pass of x"
    yield from ((f"x_{suffix}", said) for suffix, said in SUFFIXES.items() if suffix in suffixes)
