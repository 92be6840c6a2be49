"""What running emitted modules takes."""

from shardwright.codegen.backends.toolchain import Runtime, host_devices

RUNTIME = Runtime(packages=("jax",), extra="tpu", environment=host_devices)
