"""A reshard as a JAX primitive, with rules for `jax.vmap` and for derivatives.

Its parameters: `host`, the reshard (a `OneOrder` or `TwoOrders`); `source` and `target`, the meshes
with the axes that shardings name. The derivative of a reshard is the reshard
itself; its transpose is the reverse reshard, in the sibling module.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding

from .jax_bits import by_bits
from .jax_meshes import apart, typed

reshard_p = Primitive("reshard")


class Operation:
    """Derivatives and `jax.vmap` of a reshard. `name`: the name of its module; `derivative`: the
    module of the reverse reshard, "extremum" if there is none because terms are reduced by max or
    min, "" if none was emitted."""

    def __init__(self, name, derivative=""):
        self.name, self.derivative = name, derivative

    def attach(self, host):
        """Bind to the host of a reshard."""
        self.host = host

    def bind(self, x, source, target, interpret, collective_id):
        """Return the result of the primitive. `source`, `target`: meshes of the side's devices,
        with any axes."""
        host = self.host
        given = host.source.on(source)
        if isinstance(x, jax.core.Tracer) and _is_program(host):
            x = typed(given, x)  # tells JAX the devices of the program
        static = {"interpret": interpret, "collective_id": collective_id}
        meshes = {"source": given.mesh, "target": host.target.mesh(target)}
        return reshard_p.bind(x, host=host, **meshes, **static)

    def refuse(self):
        """Raise NotImplementedError if there is no derivative."""
        if self.derivative == "extremum":
            from .jax_reverse import refuse_extremum

            refuse_extremum()
        if not self.derivative:
            from .jax_refused import refuse_derivative  # only if emitted for jax.vmap alone

            refuse_derivative()

    @functools.cached_property
    def reverse(self):
        """Return the host of the reverse reshard, which moves cotangents. Raises ImportError if the
        sibling module is missing or belongs to a different reshard."""
        from .jax_reverse import reverse_of  # only in reverse mode

        return reverse_of(self.name, self.derivative, self.host)


def _is_program(host):
    """Return whether one program can use both meshes, which then list the same devices in the
    same order."""
    return tuple(host.source.ids) == tuple(host.target.ids)


@reshard_p.def_effectful_abstract_eval
def _type(x, host, target, **static):
    """Return the type of the result, and the effects of the operation."""
    batch = x.ndim - len(host.source.padded)
    sharding = NamedSharding(target.abstract_mesh, host.target.on(target, batch).spec)
    shape = (*x.shape[:batch], *host.target.padded)
    y = jax.core.ShapedArray(shape, x.dtype, sharding=sharding)
    return y, _effects(host, x, target=target, **static)


def _effects(host, x, interpret, **static):
    """Return the JAX effects of the program. Only interpreted kernels have effects, so no other
    programs are traced; between different device orders there is no program."""
    if not interpret or not _is_program(host):
        return set()
    move = functools.partial(_lowered, host=host, interpret=interpret, **static)
    return jax.jit(move).trace(x).jaxpr.effects


def _lowered(x, host, **static):
    """Return the result as part of a traced program. The elements of leading batch dimensions move
    one after another."""
    if x.ndim == len(host.source.padded):
        return host.lowered(x, **static)
    return _one_by_one(lax.map, functools.partial(_lowered, host=host, **static), x)


def _eager(x, host, source, target, **how):
    """Return the result for a concrete array, outside `jax.jit`."""
    batch = x.ndim - len(host.source.padded)
    if not batch:
        return host.eager(x, source, target, **how)
    meshes = {"source": source, "target": target}
    with apart(x):
        result = host.target.on(target, batch)
        if _is_program(host):
            x = jax.device_put(x, host.source.on(source, batch))
            return _in_one_program(host, result, **meshes, **how)(x)
        move = functools.partial(_eager, host=host, **meshes, **how)
        return jax.device_put(_one_by_one(_stacked, move, x), result)


def _one_by_one(over, move, x):
    """Return `over(move, x)`, which applies `move` to the elements of an array's first dimension.
    The elements of floats pass as integers of their width, because XLA on CPU may change NaNs when
    it cuts and joins arrays."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return over(move, x)

    def of_bits(bits):
        y = move(lax.bitcast_convert_type(bits, x.dtype))
        return lax.bitcast_convert_type(y, bits.dtype)

    return by_bits(functools.partial(over, of_bits), x)


def _stacked(move, x):
    """Return the results of moving the elements of an array's first dimension, outside jit."""
    if not len(x):
        return move(jnp.zeros(x.shape[1:], x.dtype))[None][:0]
    return jnp.stack([move(row) for row in x])


@functools.cache
def _in_one_program(host, result, **static):
    return jax.jit(functools.partial(_lowered, host=host, **static), out_shardings=result)


def _vectorized(arrays, axes, **static):
    """Move the batch axis of an array to 0 and bind the primitive: the rule for vmap."""
    (x,), (axis,) = arrays, axes
    with apart(x):
        return reshard_p.bind(jnp.moveaxis(x, axis, 0), **static), 0


def _differentiated(primals, tangents, host, **static):
    """Move an array and its tangent in the same way: the rule for forward mode."""
    host.operation.refuse()
    return tuple(
        reshard_p.bind(each, host=host, **static)
        for each in (*primals, *map(ad.instantiate_zeros, tangents))
    )


def _transposed(y, x, *, host, **static):
    """Move the cotangent of the result back: the rule for reverse mode."""
    from .jax_reverse import moved_back  # only in reverse mode

    host.operation.refuse()
    return [moved_back(host, y, x, **static)]


reshard_p.def_impl(_eager)
batching.primitive_batchers[reshard_p] = _vectorized
mlir.register_lowering(reshard_p, mlir.lower_fun(_lowered, False))
ad.deflinear2(reshard_p, _transposed)
ad.primitive_jvps[reshard_p] = _differentiated
