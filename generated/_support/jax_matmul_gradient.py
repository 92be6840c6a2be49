"""The reverse-mode derivative of a matmul: sibling modules compute its cotangents as matmuls."""

import jax
import jax.numpy as jnp

from .beside import host_beside
from .jax_meshes import mapped


class MatmulGradient:
    """The derivative of the matmul in module `name`; `modules`: the siblings that compute the
    cotangents of lhs and rhs."""

    def __init__(self, name, modules):
        self.name, self.modules = name, modules

    def cotangents(self, host, meshes, interpret, a, b, y_bar):
        """Return the cotangents of both operands, given the cotangent of the result."""
        told = "matmul needs the matmuls of its cotangents"
        lhs, rhs = (host_beside(self.name, module, told)[0] for module in self.modules)
        # The siblings multiply in the dtype of the result.
        a, b = (jnp.swapaxes(x, -1, -2).astype(y_bar.dtype) for x in (a, b))
        y_bar = _terms(host.out, meshes[2], y_bar, given=False)
        how = meshes[0], interpret
        found = lhs.multiplied(y_bar, b, *how), rhs.multiplied(a, y_bar, *how)
        sides = zip((host.lhs, host.rhs), meshes, found, strict=False)
        return tuple(_terms(*each, given=True).astype(host.dtypes[0]) for each in sides)


def _terms(side, mesh, x, given):
    """Return a cotangent with a leading dimension of terms, all of them equal to it (if `given`),
    or without that dimension, leaving each device its own term. Moves no data."""
    if not side.terms:
        return x
    bare = jax.sharding.PartitionSpec(*list(side.spec)[1:])
    if given:
        return mapped(lambda shard: shard[None], mesh, bare, side.spec)(x)
    return mapped(lambda shard: shard[0], mesh, side.spec, bare)(x)
