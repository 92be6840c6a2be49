"""The comments on communications: their reasons, in the names that a function has at that point."""

from __future__ import annotations

import functools
import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.codegen.backends.jax_spmd.known_values import KnownValues
from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.backends.jax_spmd.needed import VIEWS, Users
from shardwright.codegen.partition.local.communications import (
    Communication,
    WrittenRow,
    notation,
)
from shardwright.codegen.partition.local.known import plain_name
from shardwright.codegen.text.python_text import INDENT, WIDTH

MARK = "\0"
"""The character that surrounds an expression in the text of a comment."""
PLACE = f"#{MARK}"
"""The start of a line that stands for the comment on a communication; its number follows."""
ELIDED = re.compile(rf"^({'|'.join(VIEWS)}) needs")
"""Matches the reason for a move if it names an op that needs no statement."""
NAMES = r"(\bof |\btakes |: (?=[\w.]+(?: \([^)]*\))? is split ))([\w.]+)"
"""Matches a word in a place of a reason where the name of a value stands, with the word before."""
SPLIT = re.compile(r" splits dimension \d+ of (\S+)(?: \(\S+ \S+\))? there")
"""The part of a reason that names the dimension that an axis splits instead."""
ELSEWHERE = " splits another dimension there"
"""These words without the tensor, which has no name here, or that of the view of another one."""
RESHAPE = re.compile(r"\.reshape\(\([\d, ]*\)\)$")
"""Matches the shape of a shard to which an inlined expression reshapes a value."""
LONGEST = 40
"""The greatest length of an expression with a call in a comment, in characters."""


class Comments(KnownValues):
    """Write the comments of a body. The fields are those of `Writer`."""

    names: LocalNames
    communications: dict[int, Communication]
    rows: dict[int, WrittenRow]
    locals: defaultdict[str, list[int]]
    moved: dict[int, int]

    def comment(self, local: int, names: Sequence[str], types: Sequence[str]) -> list[str]:
        """Return a placeholder line for the comment of the communication that produces a local
        value, or no line if there is none. `explained` replaces it later, because the comment may
        name values that follow. `names`: the names that the communication's statement assigns;
        `types`: the types in its comment."""
        found = self.communications.get(local)
        if found is None:
            return []
        said = found.reason
        for name, every in self.names.results.items():
            said = said.replace(f"{name} must", f"{every} must")
        moved = self.moved[local]
        own = plain_name(self.program.of(moved))
        text = self._whole(moved) or "".join(self.functions.paths.get(moved, ()))
        said = re.sub(NAMES, lambda word: self._known_by_now(word, {own: text}), said)
        self.rows[found.number] = WrittenRow(self.names.function, tuple(names), tuple(types), said)
        return [f"{PLACE}{local}"]

    def explained(self, line: str, indent: int) -> list[str]:
        """Return a line unchanged or, for a placeholder of `comment`, the lines of the comment.
        The comment's text also becomes the reason in the communication's row."""
        if not line.startswith(PLACE):
            return [line]
        found = self.communications[int(line.removeprefix(PLACE))]
        said = self.rows[found.number].reason
        said = SPLIT.sub(ELSEWHERE if ELIDED.match(said) else self._split, said)
        said = ELIDED.sub(self._needing(int(line.removeprefix(PLACE))), said)
        said = re.sub(f"{MARK}(.*?){MARK}|{NAMES}", self._called, said)
        self.rows[found.number] = replace(self.rows[found.number], reason=said)
        return textwrap.wrap(
            f"{found.head}: {said}",
            WIDTH - indent * len(INDENT),
            initial_indent="# ",
            subsequent_indent="#   ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _needing(self, local: int) -> str:
        """Say which later step needs a value, as the start of a reason."""
        step = self.users.needing(local)
        if step is None:
            return "a later step needs"
        name = self._expression(self.program.of(step.results[0]).name)
        return f"a later {step.op.kind}{f', {MARK}{name}{MARK},' if name else ''} needs"

    @functools.cached_property
    def users(self) -> Users:
        """The steps that use each local value."""
        return Users(self.program)

    def _split(self, said: re.Match[str]) -> str:
        """Return the matched words, which name the tensor whose dimension an axis splits instead.
        Omit the name if the tensor has no expression here, because another value may have that
        name."""
        is_here = MARK in said[1] or self._expression(said[1])
        return said[0] if is_here else ELSEWHERE

    def _known_by_now(self, word: re.Match[str], moved: Mapping[str, str]) -> str:
        """Return the marked expression for a value of the program, as this function refers to it at
        this point: that in `moved`, if it is the operand of the communication. Return any other
        word unchanged."""
        found = moved.get(word[2]) or self._expression(word[2])
        return f"{word[1]}{MARK}{found}{MARK}" if found else word[0]

    def _called(self, word: re.Match[str]) -> str:
        """Return a marked expression, or the expression with which this function refers to a value
        of the program, or "a value" if it has none here. Return any other word unchanged."""
        other = "a value" if word[3] in self.locals else word[3]
        return word[1] or f"{word[2]}{self._expression(word[3]) or other}"

    def _expression(self, name: str) -> str:
        every = self.locals.get(name, [])  # the value itself first, then its moved copies
        found = [self._whole(v) or self.inline.get(v, "") for v in every]
        if self.names is self.functions.names:  # results of calls are in scope here
            ways = (self.functions.paths.get(v, ()) for v in every)
            found += map("".join, ways)
        paths = [text for text in found if text and "(" not in text]
        return next((t for t in (*paths, *found) if t and (t in paths or len(t) <= LONGEST)), "")

    def _whole(self, local: int) -> str:
        """Return the text of a local value, "" if it has none. A reshape has the type of the whole
        value in place of the shape of a shard: `x as f32[16@d,32]`."""
        text = self.text.get(local, "")
        value, layout = self.program.of(local), self.program.values[local].layout
        return RESHAPE.sub(f" as {notation(value.dtype, value.shape, layout.whole)}", text)
