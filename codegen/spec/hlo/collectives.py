"""Read the HLO text of a compiled program: the VMEM of its kernels, and its collectives.

A TPU pads an array to the tiles of its layout and sends the padding too, so sizes include it unless
stated otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.spec.hlo.calls import Often, executions
from shardwright.codegen.spec.hlo.received import COLLECTIVES, RAGGED, ends, received_by
from shardwright.codegen.spec.hlo.text import HloArray, HloInstruction, HloModule
from shardwright.ir.arrays import Integers

_KERNEL = re.compile(r'custom_call_target="tpu_custom_call"')
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[([^]]*)\]')
_VMEM = re.compile(r'"memory_space":"1","offset":"\d+","size":"(\d+)"')
_PAIRS = "_xla_send_recv_source_target_pairs"
_SCATTER = "all-reduce-scatter"


@dataclass(frozen=True)
class HloCollective:
    """One collective of a program.

    `op`: its opcode. `instruction`: the collective itself. `place`: the instruction that returns
    its result, which may be a fusion that contains it. `arrays`: its results on one device.
    `members`: its participants, as `ends` returns them. `often`: its number of runs in one run of
    the program.
    """

    op: str
    instruction: HloInstruction
    place: HloInstruction
    arrays: tuple[HloArray, ...]
    members: list[list[int]]
    often: Often

    def received(self, devices: int, *, padded: bool = True) -> Integers:
        """Return the bytes that each device receives in all runs, int64 [devices]. For a ragged
        all-to-all this is an upper bound. `padded`: whether to count the padding of arrays, which
        is sent too."""
        sizes = (each.padded_bytes if padded else each.nbytes for each in self.arrays)
        counted = "all-to-all" if self.op == RAGGED else self.op
        known = max((devices, *(1 + max(group) for group in self.members if group)))
        each = received_by(counted, self.members, sum(sizes), known)
        return np.array(each, dtype=np.int64) * self.often.times


def vmem_bytes(text: str) -> int | None:
    """Return the maximum bytes of VMEM that any Pallas kernel uses, or None if there are no
    kernels."""
    taken = []
    for kernel in _KERNEL.finditer(text):
        scoped = _SCOPED.search(text, kernel.end())
        taken.append(sum(map(int, _VMEM.findall(scoped[1]))) if scoped else 0)
    return max(taken, default=None)


def received_bytes(text: str, devices: int) -> int | None:
    """Return the bytes that the busiest device receives in all collectives of a program, padding
    included. Return None for a program with a ragged all-to-all, because the text does not state
    its bytes. Collectives in a loop count once per iteration."""
    received = np.zeros(devices, dtype=np.int64)
    for collective in collectives_of(HloModule(text), devices):
        if collective.op == RAGGED:
            return None
        received += collective.received(devices)
    return int(received.max())


def received_in_all(text: str, devices: int) -> list[int]:
    """Return the bytes, without padding, that each device receives in all collectives of a
    program."""
    received = np.zeros(devices, dtype=np.int64)
    for collective in collectives_of(HloModule(text), devices):
        received += collective.received(devices, padded=False)
    return [int(total) for total in received]


def collectives_of(module: HloModule, devices: int) -> tuple[HloCollective, ...]:
    """Return the collectives of a program that run, in the order of its text.

    Instructions with the same channel are different collectives, because JAX gives all collectives
    of a `shard_map` the same channel. If the compiler for TPUs cuts a collective into a chain of
    fusions, only the start of the chain is returned. If a fusion keeps only a part of an
    all-reduce, the two are a reduce-scatter. Raises ValueError for groups in an unknown notation.
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
    """Yield the collectives among the instructions, one per chain: the instruction that starts
    the chain, or its first instruction if no start is marked."""
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
    """Return the types of the arrays in a collective's result.

    An asynchronous collective returns its result in `done`, the instruction that completes it. If
    there is none, the tuple of the start has operands before results, except in an all-reduce.
    """
    if each.op == "recv":
        return each.arrays[:1]
    if each.op in COLLECTIVES:
        return each.arrays
    if done is not None:
        return done.arrays
    count = len(each.operands)
    return each.arrays if each.op == "all-reduce-start" else each.arrays[count : 2 * count]


def _scattering(module: HloModule, each: HloInstruction) -> HloInstruction | None:
    """Return the fusion that contains an all-reduce and keeps a part of its result, or None."""
    callers = module.callers.get(each.computation, [])
    named = each.computation.startswith(_SCATTER) and len(callers) == 1
    return callers[0] if named and callers[0].op == "fusion" else None
