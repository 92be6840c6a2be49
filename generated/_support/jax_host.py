"""The host side of an emitted reshard of JAX arrays: arguments, meshes, the jitted program."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from .jax_meshes import apart, expect, not_mapped, over_devices, typed
from .jax_program import self_check


class OneOrder:
    """An emitted reshard whose meshes list the same devices in the same order. `name`: its
    module's; `source`, `target`: `Sharded`s; `program`: what a device does within `shard_map`;
    `padding`: the class of what pads shards, None where all are equal; `operation`: what
    derivatives and `jax.vmap` go through, where it was emitted with them."""

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

        In a jit that moves bfloat16 or float8_e5m2 between devices XLA on CPU does so in float32,
        which changes payloads of NaNs. Of other dtypes, and outside of jit, every bit stays.
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
        never read. The result is sharded as `target_sharding(target_mesh)`, its padding zero; a jit
        around that returns it, or what `unpad` makes of it, needs such `out_shardings`, or XLA may
        shard its result anew, and JAX not be able to say how (IndivisibleError). `target_mesh`: by
        default the devices of `mesh`, in the target's order.

        Pallas modules take a bool or `pltpu.InterpretParams` as `interpret`, and `collective_id` in
        place of their own; in plain JAX both change nothing. There every process under
        `jax.distributed` calls it, with an array of which it has its devices' shards
        (`jax.make_array_from_callback`).

        Emitted with the feature vmap, one exchange follows another under `jax.vmap`; with gradients
        it is differentiable too, forward and backward: the cotangent of `x` is that of the result,
        moved back by the module beside, in Pallas with the collective id `collective_id ^ 1`.
        Between other orders of devices both are possible outside jit only. Raises ValueError for a
        wrong shape, dtype or mesh, TypeError for what is none and, between other orders of devices,
        in a jit, and NotImplementedError where it was emitted without.
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
        """Return what is wrong with the axes of meshes; "" if nothing is."""
        other = "" if target_mesh is None else self.target.unlike(target_mesh)
        return self.source.unlike(mesh) or other

    def self_check(self):
        """Return what is right about this module; exit with what is wrong."""
        return self_check(self)

    def meshes(self, mesh, target_mesh):
        """Return the meshes of both sides. Raises ValueError and TypeError for wrong ones."""
        source = self.source.mesh(mesh)
        target = self.target.mesh(mesh if target_mesh is None else target_mesh)
        got, expected = ([each.id for each in m.devices.flat] for m in (target, source))
        if got != expected:
            both = f"{got}, expected {expected}, the devices of mesh in the same order"
            raise ValueError(f"target_mesh: got devices {both}")
        return source, target

    def refuse_mix(self, x, target):
        """Raise ValueError in a program of Explicit axes, which are not those of the result."""
        context = jax.sharding.get_abstract_mesh()
        if isinstance(x, jax.core.Tracer) and AxisType.Explicit in context.axis_types:
            from .jax_explicit import refuse_mix  # where axes are Explicit

            refuse_mix(context, target)

    def eager(self, x, source, target, interpret, collective_id):
        """Return the result of an array outside of all programs."""
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
    # XLA chooses the sharding of a program's result where it is not told.
    return jax.jit(
        lambda x: host.lowered(x, source, target, interpret, collective_id),
        out_shardings=host.target.on(target, batch),
    )
