"""The requirements for running emitted modules."""

from shardwright.codegen.registry.toolchain import Runtime

RUNTIME = Runtime(
    packages=("triton", "torch"),
    extra="gpu",
    environment=lambda devices, given: {"TRITON_INTERPRET": "1"},
)
