"""Requirements to run emitted modules."""

from shardwright.codegen.registry.toolchain import Runtime, host_devices

RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=host_devices)
