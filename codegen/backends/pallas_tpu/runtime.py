"""The requirements for running emitted modules."""

from collections.abc import Mapping

from shardwright.codegen.registry.toolchain import Runtime, host_devices


def _environment(count: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for `2 * count` CPU devices. JAX has one thread per device, and every
    interpreted kernel occupies one: without enough spare threads, some of XLA's collectives would
    never run."""
    return host_devices(2 * count, given)


RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=_environment)
