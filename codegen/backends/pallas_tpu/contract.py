"""The names that emitted modules must define, and the names that the program of each kernel form
must have."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.registry.contracts import (
    JAX,
    JAX_EXPORTS,
    JAX_GROUP_EXPORTS,
    JAX_MATMUL_EXPORTS,
    JAX_MATMULS,
    JAX_PROGRAMS,
    JAX_RELAYOUT_EXPORTS,
    Contract,
)

CONTRACT = Contract(
    verified=(*JAX, "SOURCE_IDS", "TARGET_IDS"),
    compiled=(*JAX, *JAX_PROGRAMS),
    exported={**JAX_EXPORTS, "reshard_done": "start and end", "reshard_start": "start and end"},
    exported_by_groups=JAX_GROUP_EXPORTS,
    exported_by_matmuls=JAX_MATMUL_EXPORTS,
    exported_by_relayouts=JAX_RELAYOUT_EXPORTS,
    grouped=("NAMES", "_HOST", *JAX),
    matmul=JAX_MATMULS,
    collective=True,
)


@dataclass(frozen=True)
class Kernels:
    """The attributes of the program object of a kernel form. `kernels`: the kernels that always
    run; `tables`: the program's tables; `sending`: the kernels that run only if anything is
    sent."""

    kernels: tuple[str, ...]
    tables: tuple[str, ...]
    sending: tuple[str, ...] = ()


KERNELS = {
    "direct": Kernels(("kernel",), ()),
    "windows": Kernels(("unpack_kernel",), ("tiling", "slots"), ("push_kernel",)),
    "slots": Kernels(("kernel",), ("outgoing", "incoming", "slot")),
    "routed": Kernels(("kernel",), ("schedule", "slot")),
    "relayed": Kernels(("kernel",), ("schedule", "slot")),
    "gathered": Kernels(("kernel",), ("schedule", "slot")),
    "ring": Kernels(("kernel",), ("rounds", "rows", "chunks", "held", "half")),
    "spread": Kernels(("kernel",), ("schedule", "slot")),
}
"""The attributes of a module's program, by the program's form."""
FORWARDING = ("routed", "relayed", "gathered", "spread")
"""The forms in which devices forward the tiles of other devices."""
