"""A reshard between meshes that list different devices, or in another order: eager, since one
program of JAX has one order of devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .jax_host import ArrayReshard
from .jax_meshes import apart, expect, mapped


class TwoOrders(ArrayReshard):
    """Rank r is the device with the r-th id of the sorted union of both meshes."""

    def reshard(self, x, mesh, *, target_mesh=None, interpret=False, collective_id=None):
        """Return the target array from the source array, both padded. Not usable under `jax.jit`.

        As that of one order, but for `target_mesh`: by default the devices of `mesh` in the
        target's order, where it has them all. Raises TypeError where a jit around it is compiled.
        Under `jax.vmap` and differentiated outside jit only.
        """
        expect(x, self.source.padded, self.dtype, "source array")
        source = self.source.mesh(mesh)
        target = self.target.mesh(self._target_mesh(mesh, target_mesh))
        self._devices_by_rank(source, target)
        return self.bind(x, source, target, interpret, collective_id)

    def constrained(self, x, source):
        """Return the array as it is: there is no program of two orders."""
        del source
        return x

    def eager(self, x, source, target, interpret, collective_id):
        """Return the result of an array outside of all programs."""
        with apart(x):
            return self._moved_to(target, x, source, interpret, collective_id)

    def _moved_to(self, target, x, source, interpret, collective_id):
        devices = self._devices_by_rank(source, target)
        union = Mesh(np.array(devices), ("device",))
        batch = x.shape[: x.ndim - len(self.source.padded)]
        x = jax.device_put(x, self.source.sharding(source, len(batch)))
        held = {shard.device: shard.data for shard in x.addressable_shards}
        # Each process gives and takes the shards of its own devices; a device outside the source
        # mesh gives zeros, which are not read.
        shards = [
            held[device]
            if device in held
            else jnp.zeros((*batch, *self.source.local), self.dtype, device=device)
            for device in devices
            if device.process_index == jax.process_index()
        ]
        stacked = jax.make_array_from_single_device_arrays(
            (len(devices), *batch, *self.source.local),
            NamedSharding(union, P("device")),
            [shard[None] for shard in shards],
            dtype=x.dtype,
        )
        moved = self.stacked(stacked, union, interpret, collective_id)
        arrived = {shard.device: shard.data for shard in moved.addressable_shards}
        return jax.make_array_from_single_device_arrays(
            (*batch, *self.target.padded),
            self.target.sharding(target, len(batch)),
            [arrived[device][0] for device in target.local_devices],
            dtype=x.dtype,
        )

    def stacked(self, x, union, interpret=False, collective_id=None):
        """Return target shards stacked by rank, from source shards stacked by rank, over the
        devices of both meshes by rank."""
        return _stacked_program(self, x, union, interpret, collective_id)

    def lowered(self, x, **static):
        """Raise TypeError: it is in a program."""
        raise TypeError(
            "source and target list different devices, or in another order, which one jit does "
            "not allow: call reshard(x, mesh, target_mesh=...) outside jit, on a concrete array"
        )

    def effects(self, x, **static):
        """Return nothing: it runs outside of programs only."""
        return set()

    def _target_mesh(self, mesh, target_mesh):
        if target_mesh is not None:
            return target_mesh
        ids = self.source.ids
        if not set(self.target.ids) <= set(ids):
            raise ValueError(
                "target_mesh: expected a mesh, the target has devices the source lacks"
            )
        devices = [mesh.devices.flat[ids.index(device_id)] for device_id in self.target.ids]
        return self.target.mesh_of(devices)

    def _devices_by_rank(self, source, target):
        """Return the devices of both meshes by logical id; an id in both must be one device."""
        by_id = dict(zip(self.source.ids, source.devices.flat, strict=True))
        for device_id, device in zip(self.target.ids, target.devices.flat, strict=True):
            if by_id.setdefault(device_id, device) != device:
                raise ValueError(
                    f"logical id {device_id}: got {by_id[device_id]} in the source mesh and "
                    f"{device} in the target mesh, expected one device"
                )
        return [by_id[device_id] for device_id in sorted(by_id)]


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
def _stacked_program(host, stacked, mesh, interpret, collective_id):
    rows, table = P("device"), host.program.order
    collective_id = host.settings(list(mesh.devices.flat), interpret, collective_id)

    def one(order, shards):
        def exchange(shard):
            return host.program.exchange(shard, order, interpret, collective_id)

        for _ in range(stacked.ndim - 1 - len(host.source.local)):
            exchange = functools.partial(lax.map, exchange)
        return host.whole(exchange(host.bits(shards[0], interpret))[None], interpret)

    if table is None:
        return mapped(functools.partial(one, None), mesh, rows, rows)(stacked)
    return mapped(one, mesh, (P(), rows), rows)(jnp.array(table, jnp.int32), stacked)
