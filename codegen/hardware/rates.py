"""Matrix multiplication rates: multiplications and additions per second, by element type.

The rates are the vendors' peak rates of dense products. For TPUs they are from
docs.cloud.google.com/tpu/docs/{v4, v5e, v5p, v6e, tpu7x}, where the devices of a chip share its
rate; for GPUs from the data sheets at nvidia.com/en-us/data-center/h100 and /h200 (SXM, without
sparsity). A TPU multiplies float32 in one pass of bfloat16, which is JAX's default precision. The
rate of a CPU was measured with XLA on two x86-64 cores. Two rates are assumptions: OTHER, for
topologies that name no device, and half of the rate of float32 for a type that data sheets leave
out.
"""

from __future__ import annotations

from shardwright.codegen.hardware.chips import CHIPS
from shardwright.codegen.hardware.presets import device_of, name_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.ir.errors import InputError

OTHER = 1e14
"""The multiplications and additions per second of an unknown device."""

_DEVICES = {chip.generation: chip.devices for chip in CHIPS}
_SHORT = ("bfloat16", "float16")
_BYTES = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
# The rates of 16-bit floats, of 8-bit types and of float32, per chip or GPU.
_PEAKS = {
    "v4": (275e12, 275e12, 275e12),
    "v5e": (197e12, 394e12, 197e12),
    "v5p": (459e12, 918e12, 459e12),
    "v6e": (918e12, 1836e12, 918e12),
    "tpu7x": (2307e12, 4614e12, 2307e12),
    "h100": (989e12, 1979e12, 67e12),
    "h200": (989e12, 1979e12, 67e12),
    "cpu": (1e11, 1e11, 1e11),
}
# The VMEM of a TPU (`chips.py`), or the L2 cache of a GPU: 50 MB on an H100, according to its white
# paper, resources.nvidia.com/en-us-tensor-core; an H200 has the same die.
_CACHES = {chip.generation: chip.vmem_bytes for chip in CHIPS} | {
    "h100": 50 * 10**6,
    "h200": 50 * 10**6,
}


def multiply_rate(topology: Topology, dtype: str) -> float:
    """Return the multiplications and additions per second of a device of a topology, for
    products of elements of type `dtype`."""
    name = device_of(topology)
    if name not in _PEAKS:
        return topology.multiplies or OTHER
    reached = topology.multiplies / _peak(name, "float32") if topology.multiplies else 1.0
    return reached * _peak(name, dtype)


def _peak(name: str, dtype: str) -> float:
    short, byte, single = (peak / _DEVICES.get(name, 1) for peak in _PEAKS[name])
    if dtype in _SHORT:
        return short
    if dtype in _BYTES:
        return byte
    return single if dtype == "float32" else single / 2


def cache_bytes(topology: Topology) -> int:
    """Return the number of bytes that a device can reuse between products without reading memory
    again: its VMEM for a TPU, its L2 cache for a GPU, 0 for an unknown device."""
    return _CACHES.get(device_of(topology), 0)


def check_multiplies(topology: Topology, dtype: str) -> None:
    """Raise InputError if the devices of a topology cannot multiply elements of this type. The only
    such case is int64 on TPUs; `test_compile_matmul.py` checks that their compiler rejects it."""
    if dtype == "int64" and device_of(topology) in _DEVICES:
        raise InputError(
            "TPUs cannot multiply 64-bit integers",
            argument="dtype",
            got=f"int64, for {name_of(topology)}",
            expected="int32",
        )
