"""XLA's own plan of a reshard: the collectives in the HLO of the compiled identity.

`main` runs in a separate process, with one host CPU device per mesh position.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from shardwright.codegen.moves.network.passes import passes_of
from shardwright.codegen.moves.xla_passes import laid_by
from shardwright.codegen.spec.hlo.copies import copied_bytes
from shardwright.codegen.spec.hlo.received import COLLECTIVES, ends, received_of
from shardwright.codegen.spec.interop import to_named_sharding

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2}
_LINE = re.compile(rf"= (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(")
_ARRAY = re.compile(r"([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")


class Collective(NamedTuple):
    """One collective: its opcode, the bytes of its result on a device, and its participants by mesh
    position: groups, or pairs [sender, receiver] of a permute."""

    op: str
    nbytes: int
    ends: list[list[int]]


@dataclass(frozen=True)
class XlaCollectives:
    """XLA's own plan of a reshard."""

    received_max: int  # the bytes that the busiest device receives
    received_total: int  # the bytes that all devices receive
    peak: int  # the maximum bytes on a device at any time
    steps: str  # the names of the collectives, with their counts
    moves: list[Collective]  # the collectives in order
    copied: int = 0  # the bytes that a TPU reads and writes in passes around collectives
    # Whether the plan keeps every bit of small floats. To gather a vector, XLA adds zero-padded
    # shards, which turns -0 into 0 and drops NaN payloads.
    keeps_floats: bool = True

    @staticmethod
    def from_json(line: str) -> XlaCollectives:
        """Parse a plan from a line of the output of `main`."""
        figures = json.loads(line)
        return XlaCollectives(**figures | {"moves": [Collective(*m) for m in figures["moves"]]})


def received(hlo: str, devices: int) -> tuple[list[int], list[str]]:
    """Return two lists: the bytes that each device receives in all collectives of a program, and
    the opcodes of the collectives in order."""
    totals, names = [0] * devices, []
    for op, nbytes, line in _found(hlo):
        names.append(op)
        moved = received_of(op, line, nbytes, devices)
        totals = [total + more for total, more in zip(totals, moved, strict=True)]
    return totals, names


def collectives(hlo: str, devices: int) -> list[Collective]:
    """Return the collectives of a program for `devices` devices, in order."""
    return [Collective(op, nbytes, ends(op, line, devices)) for op, nbytes, line in _found(hlo)]


def in_words(names: Iterable[str]) -> str:
    """Return names with their counts as text: `2 all-gather, all-to-all`, or `none`."""
    counts = Counter(names).items()
    return ", ".join(f"{n} {name}" if n > 1 else name for name, n in counts) or "none"


def _found(hlo: str) -> Iterator[tuple[str, int, str]]:
    for line in hlo.splitlines():
        match = _LINE.search(line)
        if match is not None:
            shape, op, started = match.groups()
            yield op, _result_bytes(shape, op, bool(started)), line


def _result_bytes(shape: str, op: str, started: bool) -> int:
    """Return the bytes of a result, given the text of its type. Add the elements of a tuple. The
    start of an asynchronous collective returns the tuple (operand, result), of which only the
    result counts."""
    sizes = []
    for kind, extents in _ARRAY.findall(shape):
        bits = re.search(r"\d+", kind)
        width = _BYTES.get(kind) or (int(bits[0]) // 8 if bits else 1)
        sizes.append(width * math.prod(int(n) for n in extents.split(",") if n))
    return sizes[1] if started and op != "all-to-all" and len(sizes) > 1 else sum(sizes)


def compiled(described: dict[str, object]) -> XlaCollectives:
    """Compile a reshard for the devices of this process, and return XLA's own plan. `described`:
    the description of the reshard."""
    import jax

    from shardwright.codegen.spec.description import describe

    reshard = describe(described).reshard()
    jax.config.update("jax_enable_x64", True)
    # Use integers of the same width, because XLA moves bfloat16 as float32 on a CPU, unlike on
    # accelerators.
    dtype = f"uint{8 * reshard.itemsize}"
    source, target = map(to_named_sharding, (reshard.source, reshard.target))
    operand = jax.ShapeDtypeStruct(reshard.shape, dtype, sharding=source)
    return xla_collectives(operand, target)


def xla_collectives(operand: Any, target: Any) -> XlaCollectives:
    """Compile a reshard for the devices of this process, and return XLA's own plan.

    `operand`: a `jax.ShapeDtypeStruct` with a NamedSharding. `target`: a NamedSharding on the same
    devices.
    """
    import jax

    program = jax.jit(lambda x: x, out_shardings=target).lower(operand).compile()
    hlo = program.as_text()
    devices = target.mesh.size
    totals, names_found = received(hlo, devices)
    memory = program.memory_analysis()
    peak = sum(getattr(memory, f"{kind}_size_in_bytes") for kind in ("argument", "output", "temp"))
    said = in_words(names_found)
    laid = tuple(laid_by(hlo))
    if target.mesh.devices.flat[0].platform == "tpu":
        copied = copied_bytes(hlo)
    else:
        shard = math.prod(operand.sharding.shard_shape(operand.shape))
        copied = sum(passes_of(laid, shard, operand.dtype.itemsize, as_bits=False))
    keeps = all(each.keeps_floats for each in laid)
    moves = collectives(hlo, devices)
    return XlaCollectives(max(totals), sum(totals), int(peak), said, moves, copied, keeps)


def main() -> None:
    """Read descriptions from standard input, one per line, and print XLA's plan of each as one line
    of JSON."""
    for line in sys.stdin:
        print(json.dumps(asdict(compiled(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
