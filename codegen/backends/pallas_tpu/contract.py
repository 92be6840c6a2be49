"""What emitted modules must have, those of each form of kernel too."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.backends.contract import JAX, JAX_PROGRAMS, Contract

CONTRACT = Contract(
    verified=(*JAX, "FORM", "SOURCE_IDS", "TARGET_IDS", "VIEW", "jnp", "lax", "pl", "pltpu"),
    compiled=(*JAX, *JAX_PROGRAMS, "STAGING_BYTES"),
)


@dataclass(frozen=True)
class Kernels:
    """`kernels` and `constants` that a module of a form has; `sending`: those that it has besides
    where anything is sent."""

    kernels: tuple[str, ...]
    constants: tuple[str, ...]
    sending: tuple[str, ...] = ()


_FORWARDED = ("SLOT", "SLOTS", "MOVES", "OFFSETS", "ARRIVES", "DIGITS")
KERNELS = {
    "direct": Kernels(("_kernel",), ()),
    "windows": Kernels(
        ("_unpack_kernel",), ("UNIT", "CHUNK", "WINDOW", "BLOCKS"), ("_kernel", "STAGE")
    ),
    "slots": Kernels(("_kernel",), ("SLOT", "OUT_SLOTS", "IN_SLOTS")),
    "routed": Kernels(("_kernel",), _FORWARDED),
    "spread": Kernels(("_kernel",), (*_FORWARDED, "HELD")),
}
"""By the form that a module states."""
