"""Programs as plain JAX for one device, under `jax.shard_map`.

`expressions` is the table from ops to calls a person would write, `changes` the collectives, `body`
makes the statements, `trees` what arguments and results look like, `module` the whole file.
"""
