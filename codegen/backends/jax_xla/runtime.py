"""The packages and environment that plain JAX modules need to run."""

from shardwright.codegen.registry.toolchain import Runtime, host_devices

RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=host_devices)
