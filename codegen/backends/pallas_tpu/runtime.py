"""Requirements to run emitted modules."""

from collections.abc import Mapping

from shardwright.codegen.registry.toolchain import Runtime, host_devices


def _environment(count: int, given: Mapping[str, str]) -> dict[str, str]:
    """Twice the devices: JAX has a thread for each, and with few more than kernels need, some of
    its collectives around interpreted kernels never get one."""
    return host_devices(2 * count, given)


RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=_environment)
