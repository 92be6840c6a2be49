"""The host side of an emitted reshard of JAX arrays: arguments, meshes, the jitted program, and
the self-check."""

import functools
import math

import jax
import jax.numpy as jnp

from .jax_meshes import apart, expect, over_devices, typed

FEW = 2**18  # the number of elements; a self-check does not move larger tensors


class OneOrder:
    """An emitted reshard whose meshes list the same devices in the same order. `name`: the name
    of the module; `source`, `target`: the two sides, each a `Sharded`; `program`: the program
    that each device runs within `shard_map`; `padding`: the class that pads shards, None if all
    have one shape; `operation`: an `Operation` for derivatives and `jax.vmap`, None if emitted
    without them."""

    def __init__(self, name, shape, dtype, source, target, program, padding=None, operation=None):
        self.name, self.shape, self.dtype = name, shape, jnp.dtype(dtype)
        self.source, self.target, self.program = source, target, program
        source.name, target.name = "source", "target"
        self.paddings = padding and [padding(side, side.whole(shape)) for side in (source, target)]
        self.operation = operation
        self.ranks = sorted({*source.ids, *target.ids})
        for part in filter(None, (program, operation)):
            part.attach(self)

    # The `Exchange` of all transfers; None if partial results move or collectives move the data.
    exchange = property(lambda self: self.program.moves)

    def pad(self, x):
        """Return the padded global array of a logical tensor, or of its terms [terms, ...]: all
        source shards are padded to one size.

        Under jit, XLA on CPU moves bfloat16 and float8_e5m2 as float32, which changes NaN payloads.
        Other dtypes, and calls outside jit, preserve every bit.
        """
        expect(x, self.source.whole(self.shape), self.dtype, "tensor")
        return self.paddings[0].add(x) if self.paddings else x

    def unpad(self, y):
        """Return the logical tensor of a padded result, or its terms."""
        expect(y, self.target.padded, self.dtype, "padded result")
        return self.paddings[1].take_off(y) if self.paddings else y

    def reshard(self, x, mesh, *, target_mesh=None, interpret=False, collective_id=None):
        """Return the target array of a source array, both padded; usable under `jax.jit` if both
        meshes list the same devices in one order.

        `x`: the global array that `pad` returns, sharded as `source_sharding(mesh)`; its padding is
        never read. The result is sharded as `target_sharding(target_mesh)`, its padding zero. A
        surrounding jit that returns it, or its `unpad`, needs matching `out_shardings`: otherwise
        XLA may reshard it in a way that JAX cannot express (IndivisibleError). `target_mesh`
        defaults to the devices of `mesh`, in the target's order.

        In Pallas modules `interpret` is a bool or `pltpu.InterpretParams`, and `collective_id`
        replaces the module's own; plain JAX ignores both. Under `jax.distributed`, every process
        calls `reshard` with an array that holds its devices' shards
        (`jax.make_array_from_callback`).

        With the feature vmap, `jax.vmap` runs one exchange per batch element. With gradients
        `reshard` is differentiable in forward and reverse mode: the sibling module moves the
        cotangent of the result back, in Pallas with the collective id `collective_id ^ 1`. Between
        different device orders, vmap and derivatives work only outside jit. Raises ValueError for a
        wrong shape, dtype or mesh; TypeError for an argument of the wrong type and, between
        different device orders, within jit; NotImplementedError if the module was emitted without
        the feature.
        """
        if not jax.sharding.get_abstract_mesh().empty:
            from .jax_callers import check_current  # only if a mesh is set

            check_current(self, x, mesh, target_mesh)
        expect(x, self.source.padded, self.dtype, "source array, as pad(x) makes it")
        source, target = self.meshes(mesh, target_mesh)
        if self.operation:
            return self.operation.bind(x, source, target, interpret, collective_id)
        if isinstance(x, jax.core.Tracer):
            from .jax_refused import only_moved  # emitted without derivatives and jax.vmap

            return self.lowered(only_moved(x), source, target, interpret, collective_id)
        return self.eager(x, source, target, interpret, collective_id)

    def self_check(self):
        """Prove, without data, that every device's box is its shard and, if boxes are sent, that
        they fill every target shard. Then move numbered elements if there are few, else trace the
        program. JAX's own sharding gives the expected elements. Return the facts checked; exit on a
        fault, or if nothing ran."""
        checked, elements = proved(self), math.prod(self.shape)
        meshes = self.meshes_here()
        if elements > FEW:
            from .jax_traced import only_trace

            only_trace(self, meshes, f"{elements} elements are too many to move here; {checked}")
        from .jax_numbered import check_moves

        check_moves(self, *meshes)
        return f"{checked}{elements} elements moved, every target shard right"

    def meshes_here(self):
        """Return the meshes of both sides on the available devices. Exit if there are too few
        devices, or if a device's box differs from its shard."""
        here, need = jax.devices(), len(self.ranks)
        if len(here) < need:
            raise SystemExit(f"self-check needs {need} devices, JAX has {len(here)}")
        by_id, sides = dict(zip(self.ranks, here, strict=False)), (self.source, self.target)
        meshes = [side.mesh_of([by_id[each] for each in side.ids]) for side in sides]
        for side, mesh in zip(self.paddings or sides, meshes, strict=True):
            if fault := side.fault(mesh):
                raise SystemExit(fault)
        return meshes

    def meshes(self, mesh, target_mesh):
        """Return the meshes of both sides. Raises ValueError or TypeError for wrong meshes."""
        source = self.source.checked(mesh)
        if target_mesh is None:
            return source, self.target.mesh(mesh)
        target = self.target.checked(target_mesh)
        if [*target.devices.flat] != [*source.devices.flat]:
            from .jax_callers import refuse_order  # only if they differ

            refuse_order(source, target)
        return source, target

    def eager(self, x, source, target, interpret, collective_id):
        """Return the result for a concrete array, outside `jax.jit`."""
        with apart(x):
            x = jax.device_put(x, self.source.on(source))
            return _compiled(self, source, target, interpret, collective_id)(x)

    @functools.partial(jax.jit, static_argnums=(0, 2, 3, 4, 5))
    def lowered(self, x, source, target, interpret, collective_id):
        """Return the result as part of a traced program."""
        collective_id = self.program.settings(source.devices.flat, interpret, collective_id)
        given, result = self.source.on(source), self.target.on(target)

        def moved(shard):
            return self.program.exchange(shard, None, interpret, collective_id)

        return typed(result, over_devices(moved, [given], result)(typed(given, x)))


@functools.cache
def _compiled(host, source, target, *how):
    result = host.target.on(target)  # otherwise XLA chooses the sharding
    return jax.jit(lambda x: host.lowered(x, source, target, *how), out_shardings=result)


def proved(host):
    """Return the facts proved without data, here and by `meshes_here`; exit on a fault."""
    if fault := host.program.fault():
        raise SystemExit(fault)
    if not host.program.peers:
        return "shards tile the tensor; "
    from .spread import at_some  # only if ends list transfers

    checked = at_some(max(len(host.source.ids), len(host.target.ids)))
    return f"shards tile the tensor, all sends match receives{checked}; "
