"""The host side of an emitted matmul of JAX arrays: arguments, meshes, the jitted program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType

from .boxes import extents, not_run
from .jax_meshes import apart, at, expect, mapped, not_mapped

NO_COTANGENTS = (
    "an operand is differentiated, and the matmuls of its gradient are not here: emit with "
    "--gradient, or stop_gradient(a), stop_gradient(b) before matmul"
)


class ArrayMatmul:
    """One emitted matmul. `name`: its module's; `lhs`, `rhs`, `out`: `Sharded`s; `shapes`: those of
    the three tensors; `multiply`: what a device does within `shard_map`; `axes`: those over which
    devices are ranked; `short`: the dimensions along which it leaves padding of the result that is
    not zero; `padding`: the class of what pads shards, None where all are equal; `backward`:
    its derivative backward, a `MatmulGradient`, where there is one."""

    interpreted = False  # how a self-check interprets kernels

    def __init__(
        self, name, shapes, dtypes, sides, multiply, axes, short=(), padding=None, backward=None
    ):
        self.name, self.backward = name, backward
        self.shapes, self.dtypes = shapes, tuple(map(jnp.dtype, dtypes))
        self.lhs, self.rhs, self.out = self.sides = sides
        for side, name in zip(sides, ("lhs", "rhs", "out"), strict=True):
            side.name = name
        pairs = zip(sides, shapes, strict=True)
        self._paddings = padding and [padding(side, side.whole(shape)) for side, shape in pairs]
        self._multiply, self._axes, self._short = multiply, axes, short

    def pad_lhs(self, x):
        """Return the padded global array of lhs, or of its terms [terms, ...]: every shard in a
        slot of one size."""
        return self._padded(0, x)

    def pad_rhs(self, x):
        """Return the padded global array of rhs, or of its terms [terms, ...]."""
        return self._padded(1, x)

    def unpad(self, y):
        """Return the logical result of a padded one, or its terms."""
        expect(y, self.out.padded, self.dtypes[1], "padded result")
        return self._paddings[2].take_off(y) if self._paddings else y

    def _padded(self, number, x):
        side, shape = self.sides[number], self.shapes[number]
        expect(x, side.whole(shape), self.dtypes[0], side.name)
        return self._paddings[number].add(x) if self._paddings else x

    def matmul(self, a, b, mesh):
        """Return the product of two global arrays; usable under `jax.jit`.

        `a`, `b`: the arrays that `pad_lhs` and `pad_rhs` make, sharded as `lhs_sharding(mesh)` and
        `rhs_sharding(mesh)`; their padding is never read. The result is sharded as
        `out_sharding(mesh)`, its padding zero. Every process under `jax.distributed` calls it, with
        arrays of which it has its devices' shards. Raises ValueError for a wrong shape, dtype or
        mesh, TypeError for what is none.

        Where emitted with gradients it has a derivative backward: the cotangents of `a` and `b` are
        matmuls too, of the modules beside. Else NotImplementedError where it is differentiated. All
        terms of an operand are given the cotangent of their sum; those of the result have the same
        one, as where only their sum is used: each device takes that of its own term.
        """
        return self.multiplied(a, b, mesh)

    def multiplied(self, a, b, mesh, interpret=False):
        """Return the product: see `matmul`; `interpret`: how kernels are interpreted, if at all."""
        not_mapped("matmul")
        expect(a, self.lhs.padded, self.dtypes[0], "lhs")
        expect(b, self.rhs.padded, self.dtypes[0], "rhs")
        meshes = self.check_mesh(mesh)
        if isinstance(a, jax.core.Tracer) or isinstance(b, jax.core.Tracer):
            a, b = map(typed, (self.lhs, self.rhs), meshes, (a, b))
            return _product(self, meshes, interpret, a, b)
        with apart(a):
            a = jax.device_put(a, self.lhs.sharding(meshes[0]))
            b = jax.device_put(b, self.rhs.sharding(meshes[1]))
            return _compiled(self, meshes, interpret)(a, b)

    def check_mesh(self, mesh):
        """Return the meshes of lhs, of rhs and of the result. Raises TypeError, or ValueError."""
        if fault := self.lhs.unlike(mesh):
            raise ValueError(fault)
        return tuple(side.mesh(mesh) for side in self.sides)

    def lowered(self, meshes, interpret, a, b):
        """Return the product within a program."""
        return typed(self.out, meshes[2], self._lowered(meshes, interpret, a, b))

    def _lowered(self, meshes, interpret, a, b):
        lhs, rhs, out = self.sides
        shard = functools.partial(self.shard, interpret)
        if meshes[0] == meshes[1] == meshes[2]:
            return mapped(shard, meshes[0], (lhs.spec, rhs.spec), out.spec)(a, b)
        # The meshes list the same devices in the same order, cut into other axes: stacking shards
        # by device and taking them off again only renames the axes, and moves nothing.
        rows = [jax.sharding.PartitionSpec(mesh.axis_names) for mesh in meshes]
        a, b = (
            mapped(lambda shard: shard[None], mesh, side.spec, row)(x)
            for mesh, side, row, x in zip(meshes, (lhs, rhs), rows, (a, b), strict=False)
        )
        first = meshes[0]

        def multiplied(a, b):
            return shard(a[0], b[0])[None]

        y = mapped(multiplied, first, (rows[0], rows[0]), rows[0])(a, b)
        return mapped(lambda row: row[0], meshes[2], rows[2], out.spec)(y)

    def product(self, a, b, interpret):
        """Return the shard of the result on a device, its padding left as it comes."""
        del interpret
        return self._multiply(a, b)

    def shard(self, interpret, a, b):
        """Return the shard of the result on a device, its padding zero."""
        y = self.product(a, b, interpret)
        if self._short:
            extent = at(self._extents, lax.axis_index(self._axes))
            for axis in self._short:
                along = lax.broadcasted_iota(jnp.int32, y.shape, axis)
                y = jnp.where(along < extent[axis], y, jnp.zeros((), y.dtype))
        return y

    @functools.cached_property
    def _extents(self):
        """The exact shape of the shard of the result of every rank."""
        return np.array([extents(self.out.box(rank)) for rank in range(len(self.out.ids))])

    def self_check(self):
        """Multiply numbered elements, and return what is right; exit with what is wrong."""
        for side, shape in zip(self.sides, self.shapes, strict=True):
            if fault := side.fault(shape):
                raise SystemExit(fault)
        if len(jax.devices()) < len(self.out.ids):
            raise SystemExit(f"got {len(jax.devices())} devices, expected {len(self.out.ids)}")
        if max(dtype.itemsize for dtype in self.dtypes) == 8:
            jax.config.update("jax_enable_x64", True)
        flops = 2 * int(np.prod([*self.shapes[0], self.shapes[1][-1]], dtype=np.float64))
        if flops > MOST_FLOPS:
            not_run(f"{flops} flops are too many to do here; shards tile the tensors")
        mesh = self.lhs.mesh_of(jax.devices()[: len(self.out.ids)])
        given = [self._numbered(number) for number in range(2)]
        a, b = (_summed(side, x) for side, x in zip(self.sides, given, strict=False))
        how = mesh, self.interpreted
        y = np.asarray(self.multiplied(self.pad_lhs(given[0]), self.pad_rhs(given[1]), *how))
        found = _summed(self.out, self.unpad(y))
        wanted = a.astype(np.int64) @ b.astype(np.int64)
        if not np.array_equal(found.astype(np.int64), wanted.astype(found.dtype).astype(np.int64)):
            raise SystemExit("wrong product")
        return f"shards tile the tensors; {flops} flops done, every element of the product right"

    def _numbered(self, number):
        """Return an operand of small numbers, whose products every dtype has."""
        shape = self.sides[number].whole(self.shapes[number])
        count = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
        # Sums stay exact in 16 bits: of every 32 elements that meet one is not zero.
        return np.where((count + count // shape[-1]) % 32 == 0, 1 + number, 0).astype(
            self.dtypes[0]
        )


def without_padding(a, b, count):
    """Return two shards that are multiplied, zero where their padding meets: from so many indices
    of the dimension over which products are summed on."""
    held = jnp.arange(a.shape[-1]) < count
    return jnp.where(held, a, 0).astype(a.dtype), jnp.where(held[:, None], b, 0).astype(b.dtype)


def typed(side, mesh, x):
    """Return an array of a program, of the type that a side has on a mesh: where axes are Explicit,
    of this mesh or of another one that the array is on, with its sharding."""
    types = (*mesh.axis_types, *jax.typeof(x).sharding.mesh.axis_types)
    return jax.device_put(x, side.sharding(mesh)) if AxisType.Explicit in types else x


MOST_FLOPS = 2**28
"""More are not done in a self-check."""


def _summed(side, x):
    """Return the tensor that terms make, and what is no array of terms as it is."""
    x = np.asarray(x).astype(np.float32) if np.asarray(x).dtype.kind == "V" else np.asarray(x)
    return x.sum(axis=0) if side.terms else x


@functools.cache
def _compiled(host, meshes, interpret):
    # XLA chooses the sharding of a program's result where it is not told.
    return jax.jit(
        functools.partial(_product, host, meshes, interpret),
        out_shardings=host.out.sharding(meshes[2]),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _product(host, meshes, interpret, a, b):
    return host.lowered(meshes, interpret, a, b)


def _forward(host, meshes, interpret, a, b):
    if not host.backward:
        raise NotImplementedError(NO_COTANGENTS)
    return host.lowered(meshes, interpret, a, b), (a, b)


def _backward(host, meshes, interpret, kept, y_bar):
    bars = host.backward.cotangents(host, meshes, interpret, *kept, y_bar)
    return tuple(map(typed, (host.lhs, host.rhs), meshes, bars))


_product.defvjp(_forward, _backward)
