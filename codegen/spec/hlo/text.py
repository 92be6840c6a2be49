"""Parse the text of an HLO module into computations and instructions.

The text comes from `compiled.as_text()`, or from `--xla_dump_to` after optimizations. It may omit
operand types and the `%` before names. Instructions outside a computation form one computation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-<>]+)(?: \(.*)? \{\s*$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([^\s=]+) = (.+?) ([a-z][\w-]*)\((.*)$", re.DOTALL)
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\](?:\{([\d,]*)(?::T((?:\([\d,]+\))+))?[^}]*\})?")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-<>]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_BITS = {"pred": 8, "bf16": 16, "token": 0}


@dataclass(frozen=True)
class HloArray:
    """The type and layout of an array."""

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]  # the dimensions as they are stored, minor to major
    tiles: str  # the tiles of the layout as text, such as `(8,128)`

    @property
    def bits(self) -> int:
        """The number of bits per element."""
        found = re.search(r"\d+", self.dtype)
        return _BITS.get(self.dtype, int(found[0]) if found else 0)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements, without padding."""
        return math.prod(self.shape) * self.bits // 8

    @property
    def padded_bytes(self) -> int:
        """The number of bytes in memory, padded to the tiles of the layout. Collectives send the
        padding too."""
        extents = [self.shape[axis] for axis in reversed(self.order)]
        first = re.match(r"\(([\d,]+)\)", self.tiles)
        tile = [int(size) for size in first[1].split(",")] if first else []
        for back, size in enumerate(reversed(tile), 1):
            if back <= len(extents):
                extents[-back] = -(-extents[-back] // size) * size
        return math.prod(extents) * self.bits // 8


@dataclass(frozen=True)
class HloInstruction:
    """One instruction of a computation."""

    name: str
    computation: str  # the name of the computation that contains it
    result: str  # the text of the type of its result
    op: str  # the opcode
    operands: tuple[str, ...]  # the names of its operands
    rest: str  # the text after its operands: its attributes
    is_root: bool  # whether it is the result of its computation

    @cached_property
    def arrays(self) -> tuple[HloArray, ...]:
        """The arrays of the result, several for a tuple."""
        return tuple(arrays_of(self.result))

    @cached_property
    def called(self) -> dict[str, str]:
        """The names of the computations that the instruction calls, by attribute, such as
        `to_apply`."""
        found = dict(_CALLED.findall(self.rest))
        branches = _BRANCHES.search(self.rest)
        names = re.findall(r"[\w.\-<>]+", branches[1]) if branches else []
        return found | {f"branch {number}": name for number, name in enumerate(names)}

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """Return the integers of an attribute, `attribute={0,1}`; an empty tuple if it is
        missing."""
        found = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.rest)
        return tuple(int(number) for number in found[1].split(",") if number) if found else ()

    def text(self, attribute: str) -> str | None:
        """Return the value of an attribute, `attribute="value"` or `attribute=value`, or None if it
        is missing."""
        found = re.search(rf'\b{attribute}="?((?<=")[^"]*|[\w.\-]+)', self.rest)
        return found[1] if found else None


class HloModule:
    """An HLO module. `computations[name][instruction]`: the instructions of each computation, by
    name. `entry`: the name of the entry computation."""

    def __init__(self, text: str) -> None:
        self.head = text[: text.find("\n")] if text.startswith("HloModule") else ""
        self.entry = ""
        self.computations: dict[str, dict[str, HloInstruction]] = {}
        for instruction, is_entry in _instructions(text):
            self.computations.setdefault(instruction.computation, {})
            self.computations[instruction.computation][instruction.name] = instruction
            if is_entry:
                self.entry = instruction.computation
        if self.entry not in self.computations and self.computations:
            self.entry = list(self.computations)[-1]
        self._frames = _frames(text)

    @property
    def devices(self) -> int | None:
        """The number of devices that run the module, or None if its header does not state it."""
        counts = re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", self.head)
        return math.prod(map(int, counts)) if counts else None

    def instructions(self) -> Iterator[HloInstruction]:
        """Yield the instructions of all computations."""
        for each in self.computations.values():
            yield from each.values()

    def operands(self, of: HloInstruction) -> list[HloInstruction]:
        """Return the instructions that are operands of `of`."""
        here = self.computations[of.computation]
        return [here[name] for name in of.operands if name in here]

    @cached_property
    def users(self) -> dict[tuple[str, str], list[HloInstruction]]:
        """The users of each instruction, by the computation and the name of the instruction."""
        found: dict[tuple[str, str], list[HloInstruction]] = {}
        for each in self.instructions():
            for name in dict.fromkeys(each.operands):
                found.setdefault((each.computation, name), []).append(each)
        return found

    def root(self, computation: str) -> HloInstruction | None:
        """Return the instruction that is the result of a computation, or None."""
        each = self.computations.get(computation, {}).values()
        return next((instruction for instruction in each if instruction.is_root), None)

    @cached_property
    def callers(self) -> dict[str, list[HloInstruction]]:
        """The instructions that call each computation, by the computation's name."""
        found: dict[str, list[HloInstruction]] = {}
        for instruction in self.instructions():
            for name in instruction.called.values():
                found.setdefault(name, []).append(instruction)
        return found

    def line(self, instruction: HloInstruction) -> str:
        """Return the line of the user's program that an instruction comes from, `file.py:12`, or ""
        if unknown."""
        frame = re.search(r"stack_frame_id=(\d+)", instruction.rest)
        if frame and frame[1] in self._frames:
            return self._frames[frame[1]]
        file = instruction.text("source_file")
        return f"{file}:{instruction.text('source_line') or '?'}" if file else ""


def arrays_of(result: str) -> Iterator[HloArray]:
    """Yield the arrays in the text of a result's type."""
    for dtype, shape, order, tiles in _ARRAY.findall(result):
        extents = tuple(int(extent) for extent in shape.split(",") if extent)
        minor_first = tuple(int(axis) for axis in order.split(",") if axis)
        yield HloArray(dtype, extents, minor_first or tuple(reversed(range(len(extents)))), tiles)


def _instructions(text: str) -> Iterator[tuple[HloInstruction, bool]]:
    """Yield each instruction, and whether it is in the entry computation."""
    computation, is_entry = "", True
    for line in _joined(text):
        head = None if " = " in line.split("(")[0] else _HEAD.match(line)
        if head is not None:
            computation, is_entry = head[2], bool(head[1])
            continue
        match = _INSTRUCTION.match(line)
        if match is not None:
            root, name, result, op, rest = match.groups()
            operands, attributes = _split(rest)
            yield (
                HloInstruction(name, computation, result, op, operands, attributes, bool(root)),
                is_entry,
            )


def _joined(text: str) -> Iterator[str]:
    """Yield the lines of a text, with each instruction joined into one line."""
    held = ""
    for line in text.splitlines():
        if held and not (
            _INSTRUCTION.match(line) or _HEAD.match(line) or line.strip() in ("", "}")
        ):
            held += "\n" + line
            continue
        if held:
            yield held
        held = line if _INSTRUCTION.match(line) else ""
        if not held:
            yield line
    yield held


def _split(rest: str) -> tuple[tuple[str, ...], str]:
    """Return the names of operands, and the text after them. `rest`: the text after the parenthesis
    that opens the list of operands."""
    end = _closed(rest)
    inside = re.sub(r"/\*.*?\*/", "", rest[:end])
    names, depth, start = [], 0, 0
    for at, character in enumerate(inside + ","):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            names.append(inside[start:at].strip())
            start = at + 1
    # An array literal, as in a constant, is one operand.
    bare = (name if name[0] == "{" else name.split()[-1].lstrip("%") for name in names if name)
    return tuple(bare), rest[end + 1 :]


def _closed(rest: str) -> int:
    """Return the index in `rest` of the parenthesis that closes the one just before `rest`."""
    depth = 1
    for at, character in enumerate(rest):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return at
    return len(rest)


def _frames(text: str) -> dict[str, str]:
    """Return a dict from the number of each stack frame to its `file.py:12`, from the tables in
    the header of a module."""
    files = dict(re.findall(r'^(\d+) "(.*)"$', _table(text, "FileNames"), re.MULTILINE))
    places = {
        number: f"{files.get(file, '?')}:{line}"
        for number, file, line in re.findall(
            r"^(\d+) \{file_name_id=(\d+).*?\bline=(\d+)", _table(text, "FileLocations"), re.M
        )
    }
    frames = re.findall(r"^(\d+) \{file_location_id=(\d+)", _table(text, "StackFrames"), re.M)
    return {number: places[place] for number, place in frames if place in places}


def _table(text: str, name: str) -> str:
    found = re.search(rf"^{name}\n((?:\d+ .*\n)*)", text, re.MULTILINE)
    return found[1] if found else ""
