"""The program of one device: `lower` makes it from a program whose values have shardings.

`axes` cuts the mesh so that shardings are lists of names, `layout` is a sharding in these names,
`moves` finds paths between layouts of a value, `assign` has the layouts in which an op can run on
shards, `steps` is the grammar of the result.
"""
