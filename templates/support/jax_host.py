"""The host side of an emitted reshard of JAX arrays: arguments, meshes, the jitted program."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from .jax_meshes import apart, expect, not_mapped, over_devices, typed
from .jax_program import self_check


class OneOrder:
    """An emitted reshard whose meshes list the same devices in the same order. `name`: its
    module's; `source`, `target`: `Sharded`s; `program`: the per-device function within `shard_map`;
    `padding`: the class that pads shards, None if all are equal; `operation`: handles derivatives
    and `jax.vmap`, if emitted with them."""

    def __init__(
        self, name, shape, dtype, source, target, program, *, padding=None, operation=None
    ):
        self.name, self.shape, self.dtype = name, shape, jnp.dtype(dtype)
        self.source, self.target, self.program = source, target, program
        source.name, target.name = "source", "target"
        sides = (source, target)
        self.paddings = padding and [padding(side, side.whole(shape)) for side in sides]
        self.operation, self.exchange = operation, program.moves
        self.ranks = sorted({*source.ids, *target.ids})
        for part in filter(None, (program, operation)):
            part.attach(self)

    def pad(self, x):
        """Return the padded global array of a logical tensor, or of its terms [terms, ...]: every
        source shard in a slot of one size.

        In a jit, XLA on CPU moves bfloat16 and float8_e5m2 as float32, which changes NaN payloads.
        Other dtypes, and calls outside jit, preserve every bit.
        """
        what = "array of terms" if self.source.terms else "tensor"
        expect(x, self.source.whole(self.shape), self.dtype, what)
        return self.paddings[0].add(x) if self.paddings else x

    def unpad(self, y):
        """Return the logical tensor of a padded result, or its terms."""
        expect(y, self.target.padded, self.dtype, "padded result")
        return self.paddings[1].take_off(y) if self.paddings else y

    def reshard(self, x, mesh, *, target_mesh=None, interpret=False, collective_id=None):
        """Return the target array from the source array, both padded; usable under `jax.jit` where
        both meshes list the same devices in one order.

        `x`: the global array that `pad` makes, sharded as `source_sharding(mesh)`; its padding is
        never read. The result is sharded as `target_sharding(target_mesh)`, its padding zero. A
        surrounding jit that returns it, or its `unpad`, needs matching `out_shardings`: otherwise
        XLA may reshard it in a way that JAX cannot express (IndivisibleError). `target_mesh`
        defaults to the devices of `mesh`, in the target's order.

        In Pallas modules `interpret` is a bool or `pltpu.InterpretParams`, and `collective_id`
        replaces the module's own; plain JAX ignores both. Under `jax.distributed`, every process
        calls it with an array that holds its devices' shards (`jax.make_array_from_callback`).

        With the feature vmap, `jax.vmap` runs one exchange per element. With gradients it is
        differentiable in forward and reverse mode: the sibling module moves the cotangent of the
        result back, in Pallas with the collective id `collective_id ^ 1`. Between different device
        orders both work outside jit only. Raises ValueError for a wrong shape, dtype or mesh;
        TypeError for an argument of another type and, between different device orders, within jit;
        NotImplementedError if the feature was not emitted.
        """
        not_mapped("reshard")
        expect(x, self.source.padded, self.dtype, "source array, as pad(x) makes it")
        source, target = self.meshes(mesh, target_mesh)
        if fault := self.unlike(mesh, target_mesh):
            raise ValueError(fault)
        self.refuse_mix(x, target)
        if self.operation:
            return self.operation.bind(x, source, target, interpret, collective_id)
        if isinstance(x, jax.core.Tracer):
            return self.lowered(only_moved(x), source, target, interpret, collective_id)
        return self.eager(x, source, target, interpret, collective_id)

    def unlike(self, mesh, target_mesh):
        """Return the fault in the axes of meshes, or ""."""
        other = "" if target_mesh is None else self.target.unlike(target_mesh)
        return self.source.unlike(mesh) or other

    def self_check(self):
        """Return the facts checked about this module; exit on a fault."""
        return self_check(self)

    def meshes(self, mesh, target_mesh):
        """Return the meshes of both sides. Raises ValueError or TypeError for wrong ones."""
        source = self.source.mesh(mesh)
        target = self.target.mesh(mesh if target_mesh is None else target_mesh)
        got, expected = ([each.id for each in m.devices.flat] for m in (target, source))
        if got != expected:
            both = f"{got}, expected {expected}, the devices of mesh in the same order"
            raise ValueError(f"target_mesh: got devices {both}")
        return source, target

    def refuse_mix(self, x, target):
        """Raise ValueError in a program whose Explicit axes are not those of the result."""
        context = jax.sharding.get_abstract_mesh()
        if isinstance(x, jax.core.Tracer) and AxisType.Explicit in context.axis_types:
            from .jax_explicit import refuse_mix  # if axes are Explicit

            refuse_mix(context, target)

    def eager(self, x, source, target, interpret, collective_id):
        """Return the result for a concrete array, outside all programs."""
        batch = x.ndim - len(self.source.padded)
        with apart(x):
            x = jax.device_put(x, self.source.on(source, batch))
            return _compiled(self, batch, source, target, interpret, collective_id)(x)

    @functools.partial(jax.jit, static_argnums=(0, 2, 3, 4, 5))
    def lowered(self, x, source, target, interpret, collective_id):
        """Return the result within a program."""
        collective_id = self.program.settings(source.devices.flat, interpret, collective_id)
        batch = x.ndim - len(self.source.padded)
        given, result = self.source.on(source, batch), self.target.on(target, batch)

        def moved(shard):
            return self.program.exchange(shard, None, batch, interpret, collective_id)

        return typed(result, over_devices(moved, [given], result)(typed(given, x)))


def refuse_derivative(*_):
    """Raise NotImplementedError for a derivative."""
    raise NotImplementedError(
        "the source array is differentiated, and the reverse reshard is not here: emit with "
        "--gradient, or stop_gradient(x) before reshard"
    )


def refuse_batch(*_):
    """Raise NotImplementedError for `jax.vmap`."""
    raise NotImplementedError("reshard under jax.vmap: emit the module with --feature vmap")


_underived = jax.custom_jvp(lambda x: x)
_underived.defjvp(refuse_derivative)
only_moved = jax.custom_batching.custom_vmap(_underived)
only_moved.def_vmap(refuse_batch)


@functools.cache
def _compiled(host, batch, source, target, interpret, collective_id):
    # XLA chooses the sharding of a program's result unless told.
    return jax.jit(
        lambda x: host.lowered(x, source, target, interpret, collective_id),
        out_shardings=host.target.on(target, batch),
    )
