"""A compiled program's HLO text: the VMEM of its kernels, and its collectives.

Sizes are as in memory and on the wire: on a TPU padded to the tiles of the array's layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.hlo.calls import Often, executions
from shardwright.codegen.hlo.received import COLLECTIVES, RAGGED, ends, received_by
from shardwright.codegen.hlo.text import HloArray, HloInstruction, HloModule
from shardwright.ir.arrays import Integers

_KERNEL = re.compile(r'custom_call_target="tpu_custom_call"')
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[([^]]*)\]')
_VMEM = re.compile(r'"memory_space":"1","offset":"\d+","size":"(\d+)"')
_PAIRS = "_xla_send_recv_source_target_pairs"
_SCATTER = "all-reduce-scatter"


@dataclass(frozen=True)
class HloCollective:
    """One collective: its kind, its instruction, its place in the program.

    `arrays` are its results on a device, `members` its participants (`ends`), by position among the
    program's devices, and `often` its count in one run of the program.
    """

    op: str
    instruction: HloInstruction
    place: HloInstruction
    arrays: tuple[HloArray, ...]
    members: list[list[int]]
    often: Often

    def received(self, devices: int, *, padded: bool = True) -> Integers:
        """Return the bytes that each device receives over all runs: with the padding of arrays
        in memory, which travels, or of elements only. For a ragged all-to-all this is an upper
        bound."""
        sizes = (each.padded_bytes if padded else each.nbytes for each in self.arrays)
        counted = "all-to-all" if self.op == RAGGED else self.op
        known = max((devices, *(1 + max(group) for group in self.members if group)))
        each = received_by(counted, self.members, sum(sizes), known)
        return np.array(each, dtype=np.int64) * self.often.times


def vmem_bytes(text: str) -> int | None:
    """Return the most VMEM of any Pallas kernel in the program; None if it has none."""
    taken = []
    for kernel in _KERNEL.finditer(text):
        scoped = _SCOPED.search(text, kernel.end())
        taken.append(sum(map(int, _VMEM.findall(scoped[1]))) if scoped else 0)
    return max(taken, default=None)


def received_bytes(text: str, devices: int) -> int | None:
    """Return the bytes that the busiest device receives in the program's collectives; None if one
    is a ragged all-to-all, whose text does not state them. Loops count once per iteration."""
    received = np.zeros(devices, dtype=np.int64)
    for collective in collectives_of(HloModule(text), devices):
        if collective.op == RAGGED:
            return None
        received += collective.received(devices)
    return int(received.max())


def received_in_all(text: str, devices: int) -> list[int]:
    """Return the bytes of elements, without padding, that each device receives in all collectives
    of a program."""
    received = np.zeros(devices, dtype=np.int64)
    for collective in collectives_of(HloModule(text), devices):
        received += collective.received(devices, padded=False)
    return [int(total) for total in received]


def collectives_of(module: HloModule, devices: int) -> tuple[HloCollective, ...]:
    """Return the collectives of a program, in text order.

    Each instruction counts, whatever its channel: JAX gives all collectives of a `shard_map` one. A
    collective that a TPU compiler cuts into several fusions forms a chain, and counts at its start;
    an all-reduce of which a fusion keeps a part is a reduce-scatter. Raises ValueError for groups
    in an unknown notation.
    """
    often = executions(module)
    done = {
        operand: each
        for each in module.instructions()
        if each.op.endswith("-done")
        for operand in each.operands
    }
    found = []
    for each in _once_a_chain(module, module.instructions()):
        op, place = each.op.removesuffix("-start"), each
        arrays = _given(each, done.get(each.name))
        if op == "recv":
            op = "collective-permute"
        if op == "all-reduce" and (fusion := _scattering(module, each)) is not None:
            op, place, arrays = "reduce-scatter", fusion, fusion.arrays
        members = ends(op, each.rest.replace(_PAIRS, "source_target_pairs"), devices)
        times = often.get(each.computation)
        if times is not None:
            found.append(HloCollective(op, each, place, arrays, members, times))
    return tuple(found)


def _is_collective(each: HloInstruction) -> bool:
    return each.op.removesuffix("-start") in COLLECTIVES or (
        each.op == "recv" and _PAIRS in each.rest
    )


def _once_a_chain(
    module: HloModule, instructions: Iterable[HloInstruction]
) -> Iterator[HloInstruction]:
    """Yield collectives; for parts of one collective, the part that starts it, else the first."""
    found = [each for each in instructions if _is_collective(each)]
    starts = {
        name for name, body in module.computations.items() if any(map(_starts, body.values()))
    }
    chains: dict[tuple[str | None, ...], HloInstruction] = {}
    for each in found:
        key = _chain(each)
        if key is not None and (key not in chains or each.computation in starts):
            chains.setdefault(key, each)
            if chains[key].computation not in starts:
                chains[key] = each
    for each in found:
        key = _chain(each)
        if key is None or chains[key] is each or each.computation in starts:
            yield each


def _chain(each: HloInstruction) -> tuple[str | None, ...] | None:
    chain = each.text("chain_id")
    return None if chain is None else (chain, each.op, each.text("channel_id"))


def _starts(each: HloInstruction) -> bool:
    return 'custom_call_target="AsyncCollectiveStart"' in each.rest


def _given(each: HloInstruction, done: HloInstruction | None) -> tuple[HloArray, ...]:
    """Return a collective's result. A two-part collective returns it in the second part; without
    that, the first part's tuple has operands before results, except in an all-reduce."""
    if each.op == "recv":
        return each.arrays[:1]
    if each.op in COLLECTIVES:
        return each.arrays
    if done is not None:
        return done.arrays
    count = len(each.operands)
    return each.arrays if each.op == "all-reduce-start" else each.arrays[count : 2 * count]


def _scattering(module: HloModule, each: HloInstruction) -> HloInstruction | None:
    """Return the fusion that keeps a part of an all-reduce, if any."""
    callers = module.callers.get(each.computation, [])
    named = each.computation.startswith(_SCATTER) and len(callers) == 1
    return callers[0] if named and callers[0].op == "fusion" else None
