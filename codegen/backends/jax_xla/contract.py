"""The names that every plain JAX module must define."""

from shardwright.codegen.registry.contracts import (
    JAX,
    JAX_EXPORTS,
    JAX_GROUP_EXPORTS,
    JAX_MATMUL_EXPORTS,
    JAX_MATMULS,
    JAX_PROGRAMS,
    JAX_RELAYOUT_EXPORTS,
    Contract,
)

CONTRACT = Contract(
    verified=JAX,
    compiled=(*JAX, *JAX_PROGRAMS),
    exported=JAX_EXPORTS,
    exported_by_groups=JAX_GROUP_EXPORTS,
    exported_by_matmuls=JAX_MATMUL_EXPORTS,
    exported_by_relayouts=JAX_RELAYOUT_EXPORTS,
    grouped=("NAMES", "_HOST", *JAX),
    matmul=JAX_MATMULS,
)
