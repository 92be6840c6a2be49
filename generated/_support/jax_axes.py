"""Arrays whose meshes list the same devices in the same order, but divide them into different
axes."""

from jax.sharding import PartitionSpec as P


def over_axes(mapped, function, given, result):
    """Return a function of global arrays that computes the result's shard on each device from the
    device's shards. `mapped` turns a function of shards into a function of arrays on one mesh;
    `given`, `result`: the shardings of the arrays. Stacking shards by device and unstacking them
    renames axes without moving data."""
    rows = [P(each.mesh.axis_names) for each in (*given, result)]

    def one(*shards):
        return function(*(shard[0] for shard in shards))[None]

    def call(*arrays):
        stacked = (
            mapped(lambda shard: shard[None], each.mesh, each.spec, row)(x)
            for x, each, row in zip(arrays, given, rows, strict=False)
        )
        y = mapped(one, given[0].mesh, (rows[0],) * len(given), rows[0])(*stacked)
        return mapped(lambda row: row[0], result.mesh, rows[-1], result.spec)(y)

    return call
