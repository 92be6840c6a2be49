"""Programs as plain JAX for one device, under `jax.shard_map`.

`ops` maps each op to the call that a person would write, `changes` writes the collectives, `body`
the statements, `trees` the arguments and results, and `module` the whole file.
"""
