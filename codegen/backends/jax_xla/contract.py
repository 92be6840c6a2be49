"""What emitted modules must have."""

from shardwright.codegen.backends.contract import JAX, JAX_PROGRAMS, Contract

CONTRACT = Contract(verified=JAX, compiled=(*JAX, *JAX_PROGRAMS))
