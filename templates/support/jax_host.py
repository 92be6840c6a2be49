"""The host side of an emitted reshard of JAX arrays: arguments, meshes, the jitted program."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from .jax_meshes import apart, bits_of, expect, mapped, not_mapped
from .jax_operation import reshard_p, reverse_of
from .jax_program import self_check


class Whole:
    """The array of one side, which is not padded."""

    def __init__(self, whole):
        self.whole = whole

    def add(self, x):
        """Return an array as it is."""
        return x

    added = take_off = taken_off = add


def padding_of(side, whole):
    """Return how the array of one side is padded, of a logical array of shape `whole`."""
    if tuple(whole) == tuple(side.padded):
        return Whole(whole)
    from .jax_padding import Padding  # when it is used

    return Padding(side, whole)


class ArrayReshard:
    """One emitted reshard. `name`: its module's; `source`, `target`: `Sharded`s; `program`: what a
    device does within `shard_map`; `derivative`: the module of the reverse reshard, else why there
    is none."""

    def __init__(self, name, shape, dtype, source, target, program, derivative="none"):
        self.name, self.shape, self.dtype = name, shape, jnp.dtype(dtype)
        self.source, self.target, self.exchange = source, target, program.moves
        source.name, target.name = "source", "target"
        self.program, self.derivative = program, derivative
        self.source_padding = padding_of(source, source.whole(shape))
        self.target_padding = padding_of(target, target.whole(shape))
        self.ranks = sorted({*source.ids, *target.ids})
        program.attach(self)

    @functools.cached_property
    def reverse(self):
        """The host of the reverse reshard, which moves cotangents."""
        return reverse_of(self, self.name, self.derivative)

    def pad(self, x):
        """Return the padded global array of a logical tensor, or of its terms [terms, ...]: every
        source shard in a slot of one size.

        In a jit that moves bfloat16 or float8_e5m2 between devices XLA on CPU does so in float32,
        which changes payloads of NaNs. Of other dtypes, and outside of jit, every bit stays.
        """
        what = "array of terms" if self.source.terms else "tensor"
        expect(x, self.source.whole(self.shape), self.dtype, what)
        return self.source_padding.add(x)

    def unpad(self, y):
        """Return the logical tensor of a padded result, or its terms."""
        expect(y, self.target.padded, self.dtype, "padded result")
        return self.target_padding.take_off(y)

    def constrained(self, x, source):
        """Return an array as a program takes it: as it is, where it is in none."""
        del source
        return x

    def bind(self, x, source, target, interpret, collective_id):
        """Return the result as that of one operation; the meshes may be refined otherwise."""
        source, target = self.source.mesh(source), self.target.mesh(target)
        static = {"interpret": interpret, "collective_id": collective_id}
        x = self.constrained(x, source)
        return reshard_p.bind(x, host=self, source=source, target=target, **static)

    def unlike(self, mesh, target_mesh):
        """Return what is wrong with the axes of meshes; "" if nothing is."""
        other = "" if target_mesh is None else self.target.unlike(target_mesh)
        return self.source.unlike(mesh) or other

    def settings(self, devices, interpret, collective_id):
        """Return the collective id of a program for devices, by rank. Raises ValueError for devices
        among which it cannot send."""
        if self.program.collective_id is None:
            return None
        if not interpret:
            self.program.check_routes(devices)
        return self.program.collective_id if collective_id is None else collective_id

    def exchanged(self, shard, order, batch, interpret, collective_id):
        """Return the target shard of a source shard, before both so many dimensions of a batch; its
        elements as what they are moved as."""

        def exchange(shard):
            return self.program.exchange(shard, order, interpret, collective_id)

        for _ in range(batch):
            exchange = functools.partial(lax.map, exchange)
        if self.program.as_bits(interpret):
            shard = lax.bitcast_convert_type(shard, bits_of(self.dtype))
        return exchange(shard)

    def whole(self, y, interpret):
        """Return elements as what they are."""
        return lax.bitcast_convert_type(y, self.dtype) if self.program.as_bits(interpret) else y

    def self_check(self):
        """Return what is right about this module; exit with what is wrong."""
        return self_check(self)


class OneOrder(ArrayReshard):
    """A reshard whose meshes list the same devices in the same order."""

    def reshard(self, x, mesh, *, target_mesh=None, interpret=False, collective_id=None):
        """Return the target array from the source array, both padded; usable under `jax.jit`.

        `x`: the global array that `pad` makes, sharded as `source_sharding(mesh)`; its padding is
        never read. The result is sharded as `target_sharding(target_mesh)`, its padding zero; a jit
        around that returns it, or what `unpad` makes of it, needs such `out_shardings`, or XLA may
        shard its result anew, and JAX not be able to say how (IndivisibleError). `target_mesh`: by
        default the devices of `mesh`, in its order.

        Pallas modules take a bool or `pltpu.InterpretParams` as `interpret`, and `collective_id` in
        place of their own; in plain JAX both change nothing. There every process under
        `jax.distributed` calls it, with an array of which it has its devices' shards
        (`jax.make_array_from_callback`).

        Under `jax.vmap` one exchange follows another. Where emitted with gradients it is
        differentiable, forward and backward: the cotangent of `x` is that of the result, moved
        back by the module beside, in Pallas with the collective id `collective_id ^ 1`. Raises
        ValueError for a wrong shape, dtype or mesh, TypeError for what is none, and
        NotImplementedError where there is no derivative.
        """
        not_mapped("reshard")
        expect(x, self.source.padded, self.dtype, "source array, as pad(x) makes it")
        source, target = self.meshes(mesh, target_mesh)
        if fault := self.unlike(mesh, target_mesh):
            raise ValueError(fault)
        context = jax.sharding.get_abstract_mesh()
        if (
            isinstance(x, jax.core.Tracer)
            and AxisType.Explicit in context.axis_types
            and context != target.abstract_mesh
        ):
            raise ValueError(
                f"the result is on a mesh of axes {dict(target.shape)}, which a traced program "
                f"cannot mix with the Explicit axes that are set, {dict(context.shape)}: where "
                "both are the same give that mesh as target_mesh, else call reshard(x, mesh) "
                "outside jit, on a concrete array, or trace without jax.set_mesh"
            )
        return self.bind(x, source, target, interpret, collective_id)

    def meshes(self, mesh, target_mesh):
        """Return the meshes of both sides. Raises ValueError and TypeError for wrong ones."""
        source = self.source.mesh(mesh)
        target = self.target.mesh(mesh if target_mesh is None else target_mesh)
        if list(target.devices.flat) != list(source.devices.flat):
            both = f"{_ids(target)}, expected {_ids(source)}, the devices of mesh in the same order"
            raise ValueError(f"target_mesh: got devices {both}")
        return source, target

    def constrained(self, x, source):
        """Return an array, sharded as its program, one for the devices of a mesh, takes it."""
        if not isinstance(x, jax.core.Tracer):
            return x
        meshes = jax.typeof(x).sharding.mesh, jax.sharding.get_abstract_mesh()
        if AxisType.Explicit in source.axis_types:
            return jax.sharding.reshard(x, self.source.sharding(source))
        if any(AxisType.Explicit in each.axis_types for each in meshes):
            return x
        return lax.with_sharding_constraint(x, self.source.sharding(source))

    def eager(self, x, source, **static):
        """Return the result of an array outside of all programs."""
        batch = x.ndim - len(self.source.padded)
        with apart(x):
            x = jax.device_put(x, self.source.sharding(source, batch))
            return _compiled(self, batch, source=source, **static)(x)

    @functools.partial(jax.jit, static_argnums=(0, 2, 3, 4, 5))
    def lowered(self, x, source, target, interpret, collective_id):
        """Return the result within a program."""
        # The two meshes list the same devices in the same order: stacking the target shards by
        # device and taking them off again only renames the axes, and moves nothing.
        rows, out_rows = P(source.axis_names), P(target.axis_names)
        collective_id = self.settings(list(source.devices.flat), interpret, collective_id)
        batch = x.ndim - len(self.source.padded)

        def first(shard):
            return self.exchanged(shard, None, batch, interpret, collective_id)[None]

        def last(row):
            return self.whole(row[0], interpret)

        if AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types:  # perhaps of another mesh
            x = jax.device_put(x, self.source.sharding(source, batch))
        y = mapped(first, source, self.source.batched(batch), rows)(x)
        y = mapped(last, target, out_rows, self.target.batched(batch))(y)
        if AxisType.Explicit in target.axis_types:
            return jax.sharding.reshard(y, self.target.sharding(target, batch))
        return y

    def effects(self, x, interpret, **static):
        """Return what the program does beside. Compiled kernels do nothing, so that there is no
        need to trace them for it."""
        if not interpret:
            return set()
        return OneOrder.lowered.trace(self, x, interpret=interpret, **static).jaxpr.effects


def _ids(mesh):
    return [device.id for device in mesh.devices.flat]


@functools.cache
def _compiled(host, batch, target, **static):
    # XLA chooses the sharding of a program's result where it is not told.
    return jax.jit(
        functools.partial(host.lowered, target=target, **static),
        out_shardings=host.target.sharding(target, batch),
    )
