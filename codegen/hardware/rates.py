"""Matrix multiplication rates: multiplications and additions per second, by element type.

Peak rates of dense products as the vendors state them: TPUs docs.cloud.google.com/tpu/docs/{v4,
v5e, v5p, v6e, tpu7x}, a chip's over its devices; GPUs the data sheets of
nvidia.com/en-us/data-center/h100 and /h200 (SXM, without sparsity). float32 on TPU is multiplied in
one pass of bfloat16, JAX's default precision there. A processor's rate was measured with XLA on two
x86-64 cores. For types that no data sheet names, and for topologies that name no device, the rate
is an assumption: OTHER.
"""

from __future__ import annotations

from shardwright.codegen.hardware.chips import CHIPS
from shardwright.codegen.hardware.presets import device_of, name_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.ir.errors import InputError

OTHER = 1e14
"""Default operations (multiplications and additions) per second."""

_DEVICES = {chip.generation: chip.devices for chip in CHIPS}
_SHORT = ("bfloat16", "float16")
_BYTES = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
# Per chip or GPU: 16-bit floats, 8-bit types, float32.
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
# VMEM: `chips.py`. L2: the H100's white paper, resources.nvidia.com/en-us-tensor-core, 50 MB; the
# H200 has the same die.
_CACHES = {chip.generation: chip.vmem_bytes for chip in CHIPS} | {
    "h100": 50 * 10**6,
    "h200": 50 * 10**6,
}


def multiply_rate(topology: Topology, dtype: str) -> float:
    """Return multiplications and additions per second of a topology's device."""
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
    """Return the bytes that a device keeps close to its arithmetic units between products: the VMEM
    of a TPU, the L2 cache of a GPU, 0 for an unknown device."""
    return _CACHES.get(device_of(topology), 0)


def check_multiplies(topology: Topology, dtype: str) -> None:
    """Raise InputError for an element type that a topology's devices cannot multiply: the TPU
    compiler lacks one such type, as `test_compile_matmul.py` checks."""
    if dtype == "int64" and device_of(topology) in _DEVICES:
        raise InputError(
            "TPUs cannot multiply 64-bit integers",
            argument="dtype",
            got=f"int64, for {name_of(topology)}",
            expected="int32",
        )
