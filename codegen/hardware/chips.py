"""TPU generations: the resources of a device, and the links between the chips of a slice.

Sources of the numbers:

[compiler]  the compiler for TPUs in libtpu 0.0.42. For a program that needs too much memory, it
            reports the HBM size, and it lowers `vmem_limit_bytes` to its limit.
            `test_compile_tpu.py` checks both.
[cloud]     docs.cloud.google.com/tpu/docs/{v4, v5e, v5p, v6e, tpu7x}: tables of specifications.
            Bandwidths are in GB/s per chip; interconnect bandwidth is the sum over all links and
            both directions.
[book]      jax-ml.github.io/scaling-book/tpus: the bandwidth of a v4 link, and the axes that wrap
            around: axes of 16 on v5e and v6e, axes of full 4x4x4 cubes on the others.
[pallas]    docs.jax.dev/en/latest/pallas/tpu/distributed.html, "Routing": on v5e "devices can
            only route to a power of 2 offset from themselves".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from shardwright.ir.errors import InputError, one_of

GIB = 2**30
_FLAT = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
# Slices such as 4x4x8 are left out, because Google Cloud links them as twisted tori.
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "8x8x8")


@dataclass(frozen=True)
class Chip:
    """One generation of chips. Bytes and bandwidths are per JAX device, which is a core on v4 and
    tpu7x.

    `devices`: the number of JAX devices per chip. `vmem_bytes`: the maximum bytes of VMEM of one
    kernel. `hbm_bandwidth`: the bytes per second that a device reads and writes. `link_bandwidth`:
    the bytes per second over one link of the interconnect in one direction; if a chip has two
    devices, the share of one. `core_bandwidth`: the bytes per second from one core of a chip to the
    other, 0 if a chip is one device. `power_of_two_offsets`: whether a device sends directly only
    over a power of two of hops. `layouts`: the slices that the compiler knows, each as the number
    of chips along each axis.
    """

    generation: str
    devices: int
    hbm_bytes: int
    vmem_bytes: int
    hbm_bandwidth: float
    link_bandwidth: float
    core_bandwidth: float
    power_of_two_offsets: bool
    layouts: tuple[str, ...]


# Sources. devices, hbm_bytes, vmem_bytes: [compiler]. hbm_bandwidth: [cloud]. link_bandwidth:
# [cloud], divided by 4 links in two dimensions or 6 in three, and by two directions; for v4 [book].
# Both bandwidths are divided by the number of devices per chip. core_bandwidth: [cloud]; on v4 half
# of the HBM bandwidth, because one core writes and the other reads; on tpu7x that of six links.
CHIPS = (
    Chip("v4", 2, 61 * GIB // 4, 16 * 2**20, 1200e9 / 2, 45e9 / 2, 600e9, False, _CUBES),
    Chip("v5e", 1, 63 * GIB // 4, 128 * 2**20, 819e9, 400e9 / 4 / 2, 0, True, _FLAT),
    Chip("v5p", 1, 9574 * GIB // 100, 67_043_328, 2765e9, 1200e9 / 6 / 2, 0, False, _CUBES),
    Chip("v6e", 1, 125 * GIB // 4, 134_152_192, 1638e9, 800e9 / 4 / 2, 0, False, _FLAT),
    Chip(
        "tpu7x", 2, 379 * GIB // 4, 64 * 2**20, 7380e9 / 2, 1200e9 / 6 / 2 / 2, 600e9, False, _CUBES
    ),
)

TOPOLOGIES = tuple(f"{chip.generation}:{layout}" for chip in CHIPS for layout in chip.layouts)
"""The slices that the compiler for TPUs knows: `generation:layout`."""


@dataclass(frozen=True)
class SliceTorus:
    """The links of a slice: a grid of chips, with or without links between the ends of an axis."""

    sizes: tuple[int, ...]  # the number of chips along each axis
    wraps: tuple[bool, ...]  # whether the ends of each axis are linked

    @property
    def chips(self) -> int:
        """The number of chips of the slice."""
        return math.prod(self.sizes)


def chip_of(topology: str) -> Chip:
    """Return the chip generation of a slice such as `v5e:4x4`. Raise InputError for an unknown
    slice."""
    generation, _ = _split(topology)
    return next(chip for chip in CHIPS if chip.generation == generation)


def torus_of(topology: str) -> SliceTorus:
    """Return the links of a slice such as `v5e:4x4`. Raise InputError for an unknown slice.

    >>> torus_of("v5e:8x16")
    SliceTorus(sizes=(8, 16), wraps=(False, True))
    """
    _, layout = _split(topology)
    return slice_of(tuple(map(int, layout.split("x"))))


def slice_of(sizes: tuple[int, ...]) -> SliceTorus:
    """Return the links of chips in two or three dimensions [book], even if the compiler does not
    know a slice of these sizes."""
    if len(sizes) == 2:
        return SliceTorus(sizes, tuple(size == 16 for size in sizes))
    cubes = all(size % 4 == 0 for size in sizes)
    return SliceTorus(sizes, (cubes,) * len(sizes))


def unknown_slice(text: str) -> str:
    """Return a warning if `text` names a slice that Google Cloud does not offer [cloud], else "".
    Such a slice is priced as a grid of chips.

    >>> unknown_slice("v5e:2x4"), unknown_slice("v5p:4x8x12"), unknown_slice("torus:3x3")
    ('', '', '')
    """
    generation, _, layout = text.partition(",")[0].partition(":")
    chip = next((chip for chip in CHIPS if chip.generation == generation), None)
    sizes = layout.split("x")
    if chip is None or not all(re.fullmatch("[1-9][0-9]{,2}", size) for size in sizes):
        return ""  # other hardware, or an invalid text, which raises elsewhere
    cubes = len(sizes) == 3 and all(int(size) % 4 == 0 for size in sizes)
    if cubes or layout in (*chip.layouts, "1x1", "1x1x1"):
        return ""
    known = ", ".join(chip.layouts)
    return f"no {generation} slice is {layout} ({known}): priced as a grid of chips"


def _split(topology: str) -> tuple[str, str]:
    if topology not in TOPOLOGIES:
        raise InputError(
            "no such TPU topology",
            argument="topology",
            got=topology,
            expected=one_of(TOPOLOGIES),
        )
    generation, layout = topology.split(":")
    return generation, layout
