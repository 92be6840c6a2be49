"""What the modules of plain JAX must have."""

from shardwright.codegen.backends.contract import JAX, JAX_MATMULS, JAX_PROGRAMS, Contract

CONTRACT = Contract(
    verified=JAX,
    compiled=(*JAX, *JAX_PROGRAMS),
    grouped=("NAMES", "_HOST", *JAX),
    matmul=JAX_MATMULS,
)
