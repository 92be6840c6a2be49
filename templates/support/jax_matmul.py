"""The host side of an emitted matmul of JAX arrays: arguments, meshes, the jitted program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .boxes import extents
from .jax_meshes import apart, expect, over_devices, typed

NO_COTANGENTS = (
    "an operand is differentiated, and the matmuls of its gradient were not emitted: emit with "
    "--gradient, or stop_gradient(a), stop_gradient(b) before matmul"
)


class ArrayMatmul:
    """One emitted matmul. `name`: the name of the module; `shapes`: the shapes of lhs, rhs and
    the result; `sides`: the `Sharded` of each; `multiply`: the per-device function within
    `shard_map`; `axes`: the mesh axes that number the devices; `short`: the dimensions along
    which `multiply` leaves nonzero padding in the result; `padding`: the class that pads shards,
    None if all have one shape; `backward`: its reverse-mode derivative, a `MatmulGradient`, if
    emitted."""

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
        """Return the padded global array of lhs, or of its terms [terms, ...]: all shards are
        padded to one size."""
        return self._padded(0, x)

    def pad_rhs(self, x):
        """Return the padded global array of rhs, or of its terms [terms, ...]."""
        return self._padded(1, x)

    def unpad(self, y):
        """Return the logical result, or its terms, given the padded result."""
        expect(y, self.out.padded, self.dtypes[1], "padded result")
        return self._paddings[2].take_off(y) if self._paddings else y

    def _padded(self, number, x):
        side, shape = self.sides[number], self.shapes[number]
        expect(x, side.whole(shape), self.dtypes[0], side.name)
        return self._paddings[number].add(x) if self._paddings else x

    def matmul(self, a, b, mesh):
        """Return the product of two global arrays; usable under `jax.jit`.

        `a`, `b`: results of `pad_lhs` and `pad_rhs`, sharded as `lhs_sharding(mesh)` and
        `rhs_sharding(mesh)`; their padding is never read. The result is sharded as
        `out_sharding(mesh)`, its padding zero. Under `jax.distributed`, every process calls it with
        arrays that hold its devices' shards. Raises ValueError for a wrong shape, dtype or mesh,
        and TypeError for an argument of the wrong type.

        If emitted with gradients, `matmul` has a reverse-mode derivative: sibling modules compute
        the cotangents of `a` and `b` as matmuls. Otherwise differentiation raises
        NotImplementedError. Every term of an operand gets the cotangent of the sum. The terms of
        the result must share one cotangent, as they do if only their sum is used: each device reads
        the cotangent of its own term.
        """
        return self.multiplied(a, b, mesh)

    def multiplied(self, a, b, mesh, interpret=False):
        """Return the product (see `matmul`); `interpret`: how to interpret kernels, if at all."""
        if not jax.sharding.get_abstract_mesh().empty:
            from .jax_callers import not_mapped  # only if a mesh is set

            not_mapped("matmul")
        expect(a, self.lhs.padded, self.dtypes[0], "lhs")
        expect(b, self.rhs.padded, self.dtypes[0], "rhs")
        meshes = self.meshes(mesh)
        lhs, rhs = self.lhs.on(meshes[0]), self.rhs.on(meshes[1])
        if isinstance(a, jax.core.Tracer) or isinstance(b, jax.core.Tracer):
            return _product(self, meshes, interpret, typed(lhs, a), typed(rhs, b))
        with apart(a):
            a, b = jax.device_put((a, b), (lhs, rhs))
            return _compiled(self, meshes, interpret)(a, b)

    def meshes(self, mesh):
        """Return the meshes of lhs, rhs and the result. Raises TypeError or ValueError for a wrong
        mesh."""
        return (self.lhs.checked(mesh), self.rhs.mesh(mesh), self.out.mesh(mesh))

    def lowered(self, meshes, interpret, a, b):
        """Return the product as part of a traced program."""
        *given, result = (side.on(mesh) for side, mesh in zip(self.sides, meshes, strict=True))
        shard = functools.partial(self.shard, interpret)
        return typed(result, over_devices(shard, given, result)(a, b))

    def product(self, a, b, _interpret):
        """Return the shard of the result on a device, with arbitrary padding."""
        return self._multiply(a, b)

    def shard(self, interpret, a, b):
        """Return the shard of the result on a device, with zero padding."""
        y = self.product(a, b, interpret)
        if not self._short:
            return y
        from .jax_zeros import zeroed  # only if emitted with padding
        from .ranks import at

        shapes = [extents(self.out.box(position)) for position in range(len(self.out.ids))]
        extent = at(np.array(shapes, np.int32), lax.axis_index(self._axes))
        return zeroed(y, self.out, self._short, extent)

    def watched(self, multiply):
        """Return a product in a self-check: there are no kernels to watch."""
        return multiply()

    def self_check(self):
        """Multiply random numbers and return the facts checked. Exit on a fault, or if the
        product takes too many flops."""
        if len(jax.devices()) < len(self.out.ids):
            need = f"self-check needs {len(self.out.ids)} devices"
            raise SystemExit(f"{need}, JAX has {len(jax.devices())}")
        mesh = self.lhs.mesh_of(jax.devices()[: len(self.out.ids)])
        for side in self._paddings or self.sides:
            if fault := side.fault(mesh):
                raise SystemExit(fault)
        if max(dtype.itemsize for dtype in self.dtypes) == 8:
            jax.config.update("jax_enable_x64", True)
        flops = 2 * int(np.prod([*self.shapes[0], self.shapes[1][-1]], dtype=np.float64))
        if flops > MOST_FLOPS:
            from .not_run import not_run  # only if nothing runs

            not_run(f"{flops} flops are too many to compute here; shards tile the tensors")
        from .jax_drawn import check_product  # only if it takes few flops

        check_product(self, mesh)
        return f"shards tile the tensors; {flops} flops done, every element of the product right"


MOST_FLOPS = 2**28
"""The maximum number of floating-point operations of a self-check."""


@functools.cache
def _compiled(host, meshes, interpret):
    # Without `out_shardings`, XLA chooses the sharding of a program's result.
    multiply = functools.partial(_product, host, meshes, interpret)
    return jax.jit(multiply, out_shardings=host.out.on(meshes[2]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _product(host, meshes, interpret, a, b):
    return host.lowered(meshes, interpret, a, b)


def _forward(host, meshes, interpret, a, b):
    if not host.backward:
        raise NotImplementedError(NO_COTANGENTS)
    return host.lowered(meshes, interpret, a, b), (a, b)


def _backward(host, meshes, interpret, kept, y_bar):
    bars = host.backward.cotangents(host, meshes, interpret, *kept, y_bar)
    sides = zip((host.lhs, host.rhs), meshes, bars, strict=False)
    return tuple(typed(side.on(mesh), bar) for side, mesh, bar in sides)


_product.defvjp(_forward, _backward)
