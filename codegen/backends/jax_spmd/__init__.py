"""Programs as plain JAX for one device, under `jax.shard_map`.

`ops` returns the expression of each op, which the op's row in `codegen/ops` writes. `changes`
writes the collectives, `body` the statements, `trees` the arguments and results, and `module` the
whole file.
"""
