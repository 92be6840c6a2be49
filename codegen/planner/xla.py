"""XLA's own reshard: the collectives in the HLO of the compiled identity.

`main` runs in a separate process, with one host device per mesh position.
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

from shardwright.codegen.hlo.received import COLLECTIVES, ends, received_of

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2}
_LINE = re.compile(rf"= (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(")
_ARRAY = re.compile(r"([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")


class Collective(NamedTuple):
    """One collective: the bytes of its result per device, and the participants, by mesh
    position."""

    op: str
    nbytes: int
    ends: list[list[int]]


@dataclass(frozen=True)
class XlaCollectives:
    """Bytes received by the busiest device and in total, the peak on a device, the steps in words,
    the collectives in order, the bytes that a TPU reads and writes in passes around them, and
    whether it preserves every bit of small floats: for a vector it adds zero-padded shards, which
    turns -0 into 0 and drops NaN payloads."""

    received_max: int
    received_total: int
    peak: int
    steps: str
    moves: list[Collective]
    copied: int = 0
    keeps_floats: bool = True

    @staticmethod
    def from_json(line: str) -> XlaCollectives:
        """Parse the output of `main`."""
        figures = json.loads(line)
        return XlaCollectives(**figures | {"moves": [Collective(*m) for m in figures["moves"]]})


def received(hlo: str, devices: int) -> tuple[list[int], list[str]]:
    """Return the bytes that each device receives, and the collectives in program order."""
    totals, names = [0] * devices, []
    for op, nbytes, line in _found(hlo):
        names.append(op)
        moved = received_of(op, line, nbytes, devices)
        totals = [total + more for total, more in zip(totals, moved, strict=True)]
    return totals, names


def collectives(hlo: str, devices: int) -> list[Collective]:
    """Return the collectives of a program, in order."""
    return [Collective(op, nbytes, ends(op, line, devices)) for op, nbytes, line in _found(hlo)]


def in_words(names: Iterable[str]) -> str:
    """Return the names of collectives; several equal ones become one with a count."""
    counts = Counter(names).items()
    return ", ".join(f"{n} {name}" if n > 1 else name for name, n in counts) or "none"


def _found(hlo: str) -> Iterator[tuple[str, int, str]]:
    """Yield each collective with its line and the bytes of its result."""
    for line in hlo.splitlines():
        match = _LINE.search(line)
        if match is not None:
            shape, op, started = match.groups()
            yield op, _result_bytes(shape, op, bool(started)), line


def _result_bytes(shape: str, op: str, started: bool) -> int:
    """Return the bytes of a result. Tuples are summed. An asynchronous start returns (operand,
    result), so only the result counts."""
    sizes = []
    for kind, extents in _ARRAY.findall(shape):
        bits = re.search(r"\d+", kind)
        width = _BYTES.get(kind) or (int(bits[0]) // 8 if bits else 1)
        sizes.append(width * math.prod(int(n) for n in extents.split(",") if n))
    return sizes[1] if started and op != "all-to-all" and len(sizes) > 1 else sum(sizes)


def compiled(described: dict[str, object]) -> XlaCollectives:
    """Return XLA's plan for the reshard in a description, compiled for this process's devices."""
    import jax

    from shardwright.codegen.spec.description import describe
    from shardwright.codegen.spec.interop import to_named_sharding

    reshard = describe(described).reshard()
    jax.config.update("jax_enable_x64", True)
    # Use integers of the same width: on a CPU, XLA moves bfloat16 as float32, but accelerators do
    # not.
    dtype = f"uint{8 * reshard.itemsize}"
    source, target = map(to_named_sharding, (reshard.source, reshard.target))
    operand = jax.ShapeDtypeStruct(reshard.shape, dtype, sharding=source)
    return xla_collectives(operand, target)


def xla_collectives(operand: Any, target: Any) -> XlaCollectives:
    """Return XLA's plan for the reshard of a `jax.ShapeDtypeStruct` with a NamedSharding to another
    on the same devices, compiled for this process's devices."""
    import jax

    from shardwright.codegen.hlo.copies import copied_bytes
    from shardwright.codegen.planner.network.passes import passes_of
    from shardwright.codegen.planner.xla_passes import laid_by

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
    """Read one or several descriptions from standard input, and print one answer per line."""
    for line in sys.stdin:
        print(json.dumps(asdict(compiled(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
