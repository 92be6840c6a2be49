"""Programs as plain JAX for one device, under `jax.shard_map`.

`expressions` is the table from ops to calls a person would write, `changes` has the collectives,
`body` writes the statements, `trees` the arguments and results, `module` the whole file.
"""
