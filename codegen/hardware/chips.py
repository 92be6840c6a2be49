"""TPU generations: a device's resources, and how the chips of a slice are linked.

Sources of the figures:

[compiler]  the TPU compiler of libtpu 0.0.42, asked for too much: the HBM size that it reports, and
            the limit to which it cuts `vmem_limit_bytes`. `test_compile_tpu.py` asks it again.
[cloud]     docs.cloud.google.com/tpu/docs/{v4, v5e, v5p, v6e, tpu7x}: tables of specifications;
            bandwidths in GB/s a chip, that of the interconnect over all links and both ways.
[book]      jax-ml.github.io/scaling-book/tpus: bandwidth of a v4 link, and which links wrap
            around: any axis of 16 on v5e and v6e, axes of full 4x4x4 cubes on the others.
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
# Excludes slices such as 4x4x8, whose tori Google Cloud twists.
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "8x8x8")


@dataclass(frozen=True)
class Chip:
    """One generation. Bytes and bandwidths are per JAX device, which is a core on v4 and tpu7x.

    `devices`: JAX devices per chip. `vmem_bytes`: the most that one kernel may use.
    `hbm_bandwidth`, `link_bandwidth`: bytes a second, the latter over one link of the interconnect,
    one way: a device's share, if a chip has two. `core_bandwidth`: bytes a second from one core of
    a chip to the other, 0 if the chip is one device. `layouts`: slices that the compiler knows, as
    chips along the torus.
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
# [cloud] over 4 links of a flat torus or 6 of a deep one, and over two directions; for v4 [book].
# Both bandwidths are divided by the devices of a chip. core_bandwidth: [cloud]; on v4 half that of
# HBM, where one core writes and the other reads; on tpu7x that of six links of the interconnect.
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
"""Slices that the TPU compiler knows: the generation, and the layout of its chips."""


@dataclass(frozen=True)
class SliceTorus:
    """The chips of a slice along each dimension, and whether that dimension's ends are linked to
    each other."""

    sizes: tuple[int, ...]
    wraps: tuple[bool, ...]

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(self.sizes)


def chip_of(topology: str) -> Chip:
    """Return the generation of a topology's chips. Raises InputError for an unknown name."""
    generation, _ = _split(topology)
    return next(chip for chip in CHIPS if chip.generation == generation)


def torus_of(topology: str) -> SliceTorus:
    """Return how a topology's chips are linked. Raises InputError for an unknown name.

    >>> torus_of("v5e:8x16")
    SliceTorus(sizes=(8, 16), wraps=(False, True))
    """
    _, layout = _split(topology)
    return slice_of(tuple(map(int, layout.split("x"))))


def slice_of(sizes: tuple[int, ...]) -> SliceTorus:
    """Return how chips in two or three dimensions are linked [book], even if the compiler has no
    slice of these sizes."""
    if len(sizes) == 2:
        return SliceTorus(sizes, tuple(size == 16 for size in sizes))
    cubes = all(size % 4 == 0 for size in sizes)
    return SliceTorus(sizes, (cubes,) * len(sizes))


def unknown_slice(text: str) -> str:
    """Return a warning if a topology names a slice that Google Cloud does not offer [cloud], "" for
    any other text. Such a slice is priced as a grid of chips.

    >>> unknown_slice("v5e:2x4"), unknown_slice("v5p:4x8x12"), unknown_slice("torus:3x3")
    ('', '', '')
    """
    generation, _, layout = text.partition(",")[0].partition(":")
    chip = next((chip for chip in CHIPS if chip.generation == generation), None)
    sizes = layout.split("x")
    if chip is None or not all(re.fullmatch("[1-9][0-9]{,2}", size) for size in sizes):
        return ""  # of other hardware, or an error
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
