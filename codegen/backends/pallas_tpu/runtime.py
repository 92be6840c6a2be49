"""The requirements to run emitted modules."""

from collections.abc import Mapping

from shardwright.codegen.registry.toolchain import Runtime, host_devices


def _environment(count: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for twice `count` CPU devices. JAX has one thread per device, and
    interpreted kernels occupy one each: with only a few more threads, some of XLA's collectives
    would never get one."""
    return host_devices(2 * count, given)


RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=_environment)
