"""CPU devices for the scripts of the tests, each of which asks for some before it imports JAX."""

from __future__ import annotations

_QUICKLY = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)
"""What is under test are the programs; XLA makes code of them with two thirds of the work."""


def flags(count: int) -> str:
    """Return XLA_FLAGS for so many CPU devices."""
    return " ".join((f"--xla_force_host_platform_device_count={count}", *_QUICKLY))
