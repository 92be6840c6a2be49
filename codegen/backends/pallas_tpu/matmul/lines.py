"""The lines of a matmul's kernel, and the support functions that they call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardwright.codegen.backends.pallas_tpu.matmul.kernel import MatmulRing
from shardwright.codegen.backends.pallas_tpu.matmul.text import MatmulKernel
from shardwright.codegen.text.templates import render

CALLED = {
    "pallas_integers": ("minimum",),
    "pallas_blocked": ("BlockedArray",),
    "pallas_mask": ("mask",),
    "pallas_matmul": ("RingMatmul", "TiledArray"),
    "pallas_peers": ("LOGICAL", "div", "each", "multiple", "rem"),
    "pallas_products": (
        "Block",
        "add_product",
        "by_way",
        "clear",
        "put_product",
        "put_sum",
    ),
}
"""Functions that kernels call, by support module."""


def calls_of(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that a kernel's lines use, by support module."""
    used = {*re.findall(r"\w+", "\n".join(lines))}
    return {module: [name for name in names if name in used] for module, names in CALLED.items()}


def kernel_lines(ring: MatmulRing, name: str, axes: str, collective_id: int) -> tuple[str, ...]:
    """Return the lines of a ring's kernel and of the constant `name` that runs it; `axes`: the mesh
    axes whose order gives device positions, as an expression."""
    context = MatmulKernel(ring, name, axes, collective_id)
    form = "gather" if context.product.gathers else "scatter"
    return tuple(render(f"pallas_tpu/{form}_matmul.py.jinja", context).splitlines())
