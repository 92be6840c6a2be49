"""What one device runs: `lower` makes it of a program whose values have shardings.

`axes` cuts the mesh so that shardings are lists of names, `layout` is a sharding in these names,
`moves` finds how a value gets from one layout to another, `assign` says in which layouts an op can
run on shards, `steps` is the grammar of what comes out.
"""
