"""The text of a ring kernel, and its template context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelText
from shardwright.codegen.backends.pallas_tpu.memory import LANES
from shardwright.codegen.backends.pallas_tpu.ring import WIDE, RingForm, RingTurn
from shardwright.codegen.text.python_text import called
from shardwright.codegen.text.templates import render

CALLS = {
    "pallas_ring": ("Ring", "Round", "put"),
    "pallas_peers": ("LOGICAL", "div", "each", "rem", "remote_copy"),
}
"""The names that a module with rings imports, by support module."""
LISTED = 16
"""The most coordinates of a ring that a module lists."""


def ring_text(form: RingForm, program: str, terms: str, axes: str, *, reach: bool) -> KernelText:
    """Return the text of the kernel and of the object `program` that runs it. `terms`: the terms to
    reduce, as an expression; `axes`: the mesh axes, as an expression; `reach`: whether devices send
    directly only over a power of two of links."""
    rings = tuple(_rings(form))
    names = ", ".join(ring.name for ring in rings)
    rounds = f"({names},)" if len(rings) == 1 else f"({names})"
    given = ["ring_kernel", rounds, terms, f"rows={form.rows}", f"chunks={form.chunks}"]
    given += ["collective_id=COLLECTIVE_ID", *(["powers_of_two=True"] if reach else [])]
    context = RingKernel(axes, rings, form.rows, form.plan.reshard.source.operator)
    return KernelText(
        functions=(),
        calls=CALLS,
        libraries=frozenset(("lax", "np", "pl", "pltpu")),
        made=tuple(called(f"{program} = Ring", given)),
        kernels=(tuple(render("pallas_tpu/ring.py.jinja", context).splitlines()),),
    )


def _rings(form: RingForm) -> Iterator[RingLoop]:
    """Yield the rings of a kernel. Each ring writes its result to y; every ring after the first
    reads the previous result from y."""
    source, low, begin, count = "x", 0, 0, form.chunks * form.parts
    for number, (ref, turn) in enumerate(zip(form.refs, form.turns, strict=True)):
        count //= turn.digit.size
        yield RingLoop(number, str(ref), turn, source, low, begin, count)
        source, low, begin = "y", begin, begin + count


@dataclass(frozen=True)
class RingKernel:
    """The context of the ring kernel's template. `axes`: the mesh axes, as an expression;
    `operator`: the operator that combines terms; `rows`, `lanes`: the shape of a chunk."""

    axes: str
    rings: tuple[RingLoop, ...]
    rows: int
    operator: str
    lanes: int = LANES

    @property
    def neighbours(self) -> int:
        """The number of neighbours whose signals a device awaits at the barrier."""
        return 2 * len(self.rings)

    @property
    def chunk_bytes(self) -> str:
        return f"{self.rows * self.lanes * WIDE:,}"

    @property
    def vmem_bytes(self) -> str:
        """The size in bytes of all chunks in VMEM, for a comment: two chunks of each of three
        kinds, per direction."""
        return f"{12 * self.rows * self.lanes * WIDE:,}"


@dataclass(frozen=True)
class RingLoop:
    """One ring of a kernel. It reads `count` chunks of each part, starting at chunk `low` of
    `source`, and writes the chunks of one part to y, starting at chunk `begin`."""

    number: int
    axis: str
    turn: RingTurn
    source: str
    low: int
    begin: int
    count: int

    @property
    def name(self) -> str:
        return f"RING{self.number}"

    @property
    def function(self) -> str:
        return f"go_round_ring{self.number}"

    @property
    def geometry(self) -> str:
        """The expression that constructs the ring's `Round`."""
        folded = ", folded=True" if self.turn.folded else ""
        return f"Round({self.turn.digit.stride}, {self.size}{folded})"

    @property
    def order(self) -> str:
        """The coordinates in ring order, for a comment; long lists are abbreviated."""
        found = list(map(str, self.turn.coordinate(np.arange(self.size))))
        return ", ".join(found if self.size <= LISTED else (*found[:4], "...", *found[-2:]))

    @property
    def read(self) -> str:
        """The number of the chunk that a step combines, as an expression."""
        of = f"{self.low} + " if self.low else ""
        return f"{of}part * {self.count} + div(step, {self.size})"

    @property
    def write(self) -> str:
        """The number of the chunk of y that a chunk's last step writes, as an expression."""
        of = f"{self.begin} + " if self.begin else ""
        return f"{of}div(step, {self.size})"

    @property
    def size(self) -> int:
        return self.turn.digit.size

    @property
    def steps(self) -> int:
        """The number of steps over all chunks."""
        return self.count * self.size

    @property
    def sends(self) -> int:
        """The number of chunks of partial results sent to the next device."""
        return self.count * (self.size - 1)

    @property
    def slots(self) -> int:
        """The number of slots, all of them free at first: two, or fewer if there are fewer
        sends."""
        return min(2, self.sends)
