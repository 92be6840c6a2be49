"""Plan the moves of layers of 12 architectures from a trainer's layout to vLLM's. Count the bytes,
and how many of them two simpler kinds of systems could move.

Each cell of the table is for one layer and the embedding (`bench/layers.py`), in bfloat16. A
trainer stores them on devices 0 to 7, and vLLM with tensor parallelism N on devices 0 to N - 1. The
minimum number of bytes that a device must receive is counted independently of the plan, from its
contents before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import shardwright as sw
from bench.layers import RECIPES, STORES, Recipe
from shardwright.codegen.checks.oracle.layouts import PADDING, Numbers
from shardwright.codegen.checks.relayout_case import StoredSaid
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.holdings import TensorClasses
from shardwright.ir.parts import TensorPart

RESULT = Path(__file__).with_suffix(".md")
TRAINERS = 8
SERVERS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Cell:
    """One cell of the table, in bytes. `received`: by the busiest device; `least`: the minimum that
    a device must receive; `total`: by all devices; `one_axis`, `same_bytes`: the parts of `total`
    that each simpler kind of system could move."""

    received: int
    least: int
    total: int
    one_axis: int
    same_bytes: int

    def __str__(self) -> str:
        if not self.total:
            return "0"
        shares = (f"{100 * n / self.total:.0f}" for n in (self.one_axis, self.same_bytes))
        return f"{self.received / 2**20:,.1f} ({' / '.join(shares)})"


def measured(recipe: Recipe, by: str, devices: int) -> Cell:
    """Return the bytes that move from a store on 8 devices to vLLM on `devices`."""
    source, target = recipe.stored(by, TRAINERS), recipe.stored("vllm", devices)
    plan = sw.plan(sw.Relayout(source, target))
    alone = one_axis_tensors(source) & one_axis_tensors(target)
    small = recipe.sizes.small()
    same = same_bytes(recipe.stored(by, TRAINERS, small), recipe.stored("vllm", devices, small))
    names = [*target.buffers]
    compatible = sum(
        relay.elements * source.itemsize
        for relay in plan.moved
        if (relay.receiver, names[relay.targets[0].buffer]) in same
    )
    return Cell(
        plan.received_max,
        max(least(source, target).values()),
        plan.total,
        sum(count for name, count in plan.tensors.items() if name in alone),
        compatible,
    )


def least(source: sw.Stored, target: sw.Stored) -> dict[int, int]:
    """Return the bytes that each target device lacks, counting each element once."""
    found = dict.fromkeys(target.mesh.device_ids, 0)
    for tensor, shape in target.tensors.items():
        sides = source.holdings[tensor], target.holdings[tensor]
        classes = TensorClasses.of(shape, (box for side in sides for each in side for box in each))
        had = dict(zip(source.mesh.device_ids, map(classes.mask, sides[0]), strict=True))
        for device, boxes in zip(target.mesh.device_ids, sides[1], strict=True):
            wanted = classes.mask(boxes)
            lacked = wanted & ~had[device] if device in had else wanted
            found[device] += classes.elements(lacked) * target.itemsize
    return found


def one_axis_tensors(stored: sw.Stored) -> set[str]:
    """Return the tensors that any system with a single sharding axis could store: each has its own
    buffer with its elements in order, and is whole on each device or cut along one dimension into
    one equal chunk per device."""
    found = set()
    for layout in stored.buffers.values():
        if not isinstance(layout, TensorPart) or layout.factors is not None:
            continue
        shape = stored.tensors[layout.tensor]
        cuts = [(dim, cut) for dim, cut in enumerate(layout.dims) if not cut.is_whole]
        if not cuts:
            found.add(layout.tensor)
        elif len(cuts) == 1:
            ((dim, cut),) = cuts
            digits = cut.bind(shape[dim], stored.mesh).digits
            devices = int(np.prod([digit.size for digit in digits]))
            plain = cut == DimCut(cut.axes) and devices == stored.mesh.size
            if plain and shape[dim] % devices == 0:
                found.add(layout.tensor)
    return found


def same_bytes(source: sw.Stored, target: sw.Stored) -> set[tuple[int, str]]:
    """Return the target buffers, by device and name, that equal a contiguous range of one source
    buffer of some device, byte for byte except for padding at their end."""
    size = sum(math.prod(shape) for shape in source.tensors.values())
    wanted = [each for each in _lines(target) if each[2].size]
    found = set()
    for _, _, line in _lines(source):
        # at[n] is the index of element n in this buffer, or -1 if the buffer lacks it.
        at = np.full(size, -1)
        at[line] = np.arange(line.size)
        for device, name, numbers in wanted:
            first = at[numbers[0]]
            held = line[first : first + numbers.size]
            if first >= 0 and np.array_equal(held, numbers):
                found.add((device, name))
    return found


def _lines(stored: sw.Stored) -> Iterator[tuple[int, str, Numbers]]:
    """Yield the numbers of the elements of every buffer, without padding at its end."""
    for name, held in StoredSaid.of(stored).numbers(stored.tensors).items():
        for device, numbers in held.items():
            line = numbers.reshape(-1)
            full = np.flatnonzero(line != PADDING)
            yield device, name, line[: full[-1] + 1 if full.size else 0]


HEADINGS = ("architecture", "stored by", *(f"TP {devices}" for devices in SERVERS))
NAMES = {"hugging_face": "Hugging Face", "megatron": "Megatron", "vllm": "vLLM"}


def table() -> tuple[list[str], list[Cell]]:
    """Return the lines of the table, and all its cells."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * 2}{'---:|' * len(SERVERS)}"]
    every: list[Cell] = []
    for recipe in RECIPES.values():
        for by in STORES:
            cells = [measured(recipe, by, devices) for devices in SERVERS]
            every += cells
            listed = (recipe.model, NAMES[by], *map(str, cells))
            lines.append(f"| {' | '.join(listed)} |")
    return lines, every


def page(lines: list[str], cells: list[Cell]) -> str:
    """Return the page. It states in how many cells the plan receives no more than the bound."""
    reached = sum(cell.received == cell.least for cell in cells)
    moved = sum(cell.total for cell in cells)
    shares = [
        100 * sum(each) / moved
        for each in zip(*((cell.one_axis, cell.same_bytes) for cell in cells), strict=True)
    ]
    return "\n".join(
        [
            "# Layers from one store to another",
            "",
            "`python -m bench layouts` makes this table. A cell is one layer and the embedding in",
            "bfloat16 (`bench/layers.py` has the layouts), from what the trainer stores on devices",
            "0 to 7 to what vLLM stores with tensor parallelism (TP) on devices 0 to TP - 1:",
            "",
            "- Hugging Face: the parameters of transformers under FSDP2;",
            "- Megatron: tensor parallelism 8, for experts too, but each device has whole experts",
            "  of GPT-OSS;",
            "- vLLM: tensor parallelism 8, as for a server that grows or shrinks.",
            "",
            "vLLM 0.32 does not load T5, nor Mamba 2 and GPT-OSS on 16 devices: there the table",
            "has what its packed layers would store.",
            "",
            "The first number is the MiB that the busiest device receives. In parentheses: the",
            "share, in percent of the bytes that all devices receive, that two simpler kinds of",
            "systems can move without help:",
            "",
            "1. *One sharding axis a side*: a tensor has a buffer of its own on both sides, in its",
            "   own order, whole on every device, or cut along one dimension into one equal chunk",
            "   for each device.",
            "2. *The same bytes*: a target buffer is, byte for byte, a contiguous range of one",
            "   source buffer, but for padding at its end. This is tested on layers of fewer",
            "   elements with as many heads.",
            "",
            f"{reached} of {len(cells)} cells are at the bound: the busiest device receives each",
            "element that it lacks once. The bound is counted apart from the plan. Over all cells",
            f"the first kind moves {shares[0]:.0f} % of the bytes, the second {shares[1]:.0f} %.",
            "",
            *lines,
            "",
        ]
    )


def main() -> None:
    text = page(*table())
    RESULT.write_text(text)
    print(text)
