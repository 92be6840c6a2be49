"""Programs as plain JAX for one device, under `jax.shard_map`.

`expressions` is the table from ops to calls as a person would write them, `changes` writes the
collectives, `body` the statements, `trees` the arguments and results, and `module` the whole file.
"""
