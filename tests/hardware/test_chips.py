"""TPU generations against what JAX and Google state of them, and the links of their slices."""

from __future__ import annotations

import math

import pytest

from shardwright.codegen.hardware import chips
from shardwright.codegen.hardware.chips import CHIPS, TOPOLOGIES, SliceTorus, chip_of, torus_of
from shardwright.ir.errors import InputError

# What jax.devices() calls a device of each generation.
KINDS = {
    "v4": "TPU v4",
    "v5e": "TPU v5 lite",
    "v5p": "TPU v5",
    "v6e": "TPU v6 lite",
    "tpu7x": "TPU7x",
}


def test_every_topology_has_a_chip_and_a_torus() -> None:
    assert len(set(TOPOLOGIES)) == len(TOPOLOGIES) == 32
    for topology in TOPOLOGIES:
        chip, torus = chip_of(topology), torus_of(topology)
        assert topology.startswith(f"{chip.generation}:")
        assert (
            len(torus.sizes) == len(torus.wraps) == (2 if chip.generation in ("v5e", "v6e") else 3)
        )
        assert torus.chips == math.prod(torus.sizes)


@pytest.mark.parametrize(
    ("topology", "torus"),
    [
        ("v5e:2x4", SliceTorus((2, 4), (False, False))),
        ("v5e:8x16", SliceTorus((8, 16), (False, True))),
        ("v6e:16x16", SliceTorus((16, 16), (True, True))),
        ("v5p:2x2x1", SliceTorus((2, 2, 1), (False, False, False))),
        ("v5p:2x4x4", SliceTorus((2, 4, 4), (False, False, False))),
        ("v4:4x4x4", SliceTorus((4, 4, 4), (True, True, True))),
        ("tpu7x:8x8x8", SliceTorus((8, 8, 8), (True, True, True))),
    ],
)
def test_which_dimensions_wrap_around(topology: str, torus: SliceTorus) -> None:
    assert torus_of(topology) == torus


def test_slices_that_are_not_offered() -> None:
    assert chips.unknown_slice("v5e:3x3,latency=1e-6") == (
        "no v5e slice is 3x3 (2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16): priced as a grid of chips"
    )
    for known in (*TOPOLOGIES, "v6e:1x1", "v4:4x4x12", "h100:2x8", "torus:3x3", "v5e:0x4", ""):
        assert chips.unknown_slice(known) == ""


def test_only_v5e_is_limited_to_power_of_two_offsets() -> None:
    assert [chip.generation for chip in CHIPS if chip.power_of_two_offsets] == ["v5e"]


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.generation)
def test_figures_are_near_those_that_jax_states(chip: chips.Chip) -> None:
    """JAX rounds and states a core's; a v5p device is both cores of a chip."""
    tpu_info = pytest.importorskip("jax._src.pallas.mosaic.tpu_info", reason="jax is not installed")
    version = tpu_info.chip_version_from_device_kind(KINDS[chip.generation])
    cores = version.num_physical_tensor_cores_per_chip
    core = tpu_info._get_tpu_info_impl(version, 1)
    a_device = cores // chip.devices
    assert chip.devices in (1, cores)
    assert chip.hbm_bytes == pytest.approx(core.hbm_capacity_bytes * a_device, rel=0.05)
    assert chip.hbm_bytes <= core.hbm_capacity_bytes * a_device
    assert chip.hbm_bandwidth == pytest.approx(core.mem_bw_bytes_per_second * a_device, rel=0.13)
    assert core.vmem_capacity_bytes - 2**16 <= chip.vmem_bytes <= core.vmem_capacity_bytes


@pytest.mark.parametrize("function", [chip_of, torus_of])
def test_a_topology_that_does_not_exist(function: object) -> None:
    assert callable(function)
    with pytest.raises(InputError) as caught:
        function("v5e:3x3")
    assert str(caught.value) == (
        f"topology: no such TPU topology\ngot: v5e:3x3\nexpected: one of {', '.join(TOPOLOGIES)}"
    )
