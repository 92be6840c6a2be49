"""Requirements to run emitted modules."""

from shardwright.codegen.backends.toolchain import Runtime, host_devices

RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=host_devices)
