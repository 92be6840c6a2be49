"""Meshes that list the same devices in the same order but divide them into other axes."""

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


def unlike(side, mesh):
    """Return the fault in a mesh whose axes have the names of a side's but another order or other
    sizes, or ""."""
    given, wanted = (_whole(axes) for axes in (mesh.shape_tuple, side.axes))
    swapped = [*given] != [*wanted] and {*given} == {*wanted}
    resized = {*given} & {*wanted} and [*given.values()] != [*wanted.values()]
    if swapped or resized:
        return f"{side.name} mesh: got axes {given}, expected {wanted}"
    return ""


def _whole(axes):
    """Return the size of each axis, merging its sub-axes (such as `x:(1)2`)."""
    sizes: dict = {}
    for name, size in axes:
        whole = name.partition(":")[0]
        sizes[whole] = sizes.get(whole, 1) * size
    return {name: size for name, size in sizes.items() if size > 1}
