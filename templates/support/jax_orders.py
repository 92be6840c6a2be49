"""Reshards between meshes of different devices or device orders; only outside `jax.jit`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .jax_host import OneOrder
from .jax_meshes import apart, mapped


class TwoOrders(OneOrder):
    """A reshard between meshes of different devices or device orders; only outside `jax.jit`.
    Rank r is the device with the r-th id of the sorted union of both meshes. `target_mesh`
    defaults to the target's devices in its order, if `mesh` has all of them."""

    def eager(self, x, source, target, interpret, collective_id):
        """Return the result for a concrete array, outside `jax.jit`."""
        union = Mesh(np.array(self.devices_by_rank(source, target)), ("device",))
        given = self.source.local
        # Each process reads and writes the shards of its own devices.
        make = functools.partial(jax.make_array_from_single_device_arrays, dtype=self.dtype)
        with apart(x):
            x = jax.device_put(x, self.source.on(source))
            held = {shard.device: shard.data[None] for shard in x.addressable_shards}
            for device in {*union.local_devices} - {*held}:  # outside the source mesh: never read
                held[device] = jnp.zeros((1, *given), self.dtype, device=device)
            shards = [held[device] for device in union.local_devices]
            x = make((union.size, *given), NamedSharding(union, P("device")), shards)
            y = self.stacked(x, union, interpret, collective_id)
            held = {shard.device: shard.data for shard in y.addressable_shards}
            shards = [held[device][0] for device in target.local_devices]
            return make(self.target.padded, self.target.on(target), shards)

    @functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
    def stacked(self, x, union, interpret=False, collective_id=None):
        """Return target shards stacked by rank, given source shards stacked by rank, over the
        devices of both meshes."""
        rows = P("device")
        collective_id = self.program.settings(union.devices.flat, interpret, collective_id)

        def one(order, rows):
            return self.program.exchange(rows[0], order, interpret, collective_id)[None]

        order = None if self.program.order is None else jnp.array(self.program.order, jnp.int32)
        return mapped(one, union, (P(), rows), rows)(order, x)

    def lowered(self, *_, **static):
        """Raise TypeError: this reshard cannot run inside `jax.jit`."""
        raise TypeError(
            "reshard cannot run under jit, because source and target list different devices, or "
            "in a different order: call it outside jit, on a concrete array"
        )

    def meshes(self, mesh, target_mesh):
        """Return the meshes of both sides. Raises ValueError or TypeError for wrong meshes."""
        source, ids = self.source.checked(mesh), self.target.ids
        if target_mesh is None:
            by_id = dict(zip(self.source.ids, mesh.devices.flat, strict=True))
            if not by_id.keys() >= {*ids}:
                raise ValueError(
                    f"target_mesh: got None, expected a mesh with the axes {dict(self.target.axes)}"
                    ", because the source mesh lacks some of the target's devices"
                )
            target_mesh = self.target.mesh_of([by_id[device_id] for device_id in ids])
        target = self.target.checked(target_mesh)
        self.devices_by_rank(source, target)
        return source, target

    def devices_by_rank(self, source, target):
        """Return the devices of both meshes in ascending order of logical id. Raises ValueError if
        an id names two devices, or a device has two ids."""
        sides = (self.source.ids, [*source.devices.flat]), (self.target.ids, [*target.devices.flat])
        pairs = {pair for side in sides for pair in zip(*side, strict=True)}
        by_id = dict(pairs)
        if not len(pairs) == len(by_id) == len({*by_id.values()}):
            from .jax_confused import refuse_confused  # only if ids and devices do not match

            refuse_confused(*sides)
        return [by_id[device_id] for device_id in sorted(by_id)]
