"""A reshard as one operation of JAX's, which vmap and derivatives go through.

`host`: what is moved (`OneOrder`, `TwoOrders`); `source`, `target`: meshes with the axes that
shardings name. The derivative of a reshard is the reshard itself, and its transpose the reverse
reshard, of the module beside.
"""

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType

from .beside import host_beside
from .jax_meshes import apart

# By what a module that moves floats says of derivatives.
NO_DERIVATIVE = {
    "none": "the source array is differentiated, and the reverse reshard is not here: emit with "
    "--gradient, or stop_gradient(x) before reshard",
    "extremum": "the maximum or minimum of terms has no derivative where terms are equal: "
    "stop_gradient(x) before reshard, or use a function of your own that has one",
}

reshard_p = Primitive("reshard")


def refuse_derivative(derivative):
    """Raise NotImplementedError where a word of NO_DERIVATIVE says why there is no derivative."""
    if derivative in NO_DERIVATIVE:
        raise NotImplementedError(NO_DERIVATIVE[derivative])


def reverse_of(host, name, backward):
    """Return what moves cotangents: the host of the module `backward` beside the module `name`.
    Raises ImportError where no such module stands there, or one of another reshard."""
    found, beside = host_beside(name, backward, "reshard needs the reverse reshard")
    alike = found.target.holds_as(host.source) and found.source.holds_as(host.target)
    if not alike or (found.shape, found.dtype) != (host.shape, host.dtype):
        raise ImportError(f"not the reverse of this reshard: {beside}")
    return found


@reshard_p.def_effectful_abstract_eval
def _type(x, host, target, **static):
    """Return the type of the result, and what else the operation does."""
    batch = x.ndim - len(host.source.padded)
    sharding = host.target.sharding(target.abstract_mesh, batch)
    shape = (*x.shape[:batch], *host.target.padded)
    y = jax.core.ShapedArray(shape, x.dtype, sharding=sharding)
    return y, host.effects(x, target=target, **static)


def _vectorized(arrays, axes, **static):
    """Move a batch, whose axis comes first."""
    (x,), (axis,) = arrays, axes
    with apart(x):
        return reshard_p.bind(jnp.moveaxis(x, axis, 0), **static), 0


def _differentiated(primals, tangents, **static):
    """Move the tangent as the array."""
    refuse_derivative(static["host"].derivative)
    (x,), (tangent,) = primals, tangents
    return reshard_p.bind(x, **static), reshard_p.bind(ad.instantiate_zeros(tangent), **static)


def _transposed(y, x, *, host, source, target, interpret, collective_id):
    """Move the cotangent of the result back."""
    refuse_derivative(host.derivative)
    collective_id = None if collective_id is None else collective_id ^ 1
    x_bar = host.reverse.bind(y, target, source, interpret, collective_id)
    if AxisType.Explicit in x.aval.sharding.mesh.axis_types:
        with apart(x_bar):
            x_bar = jax.sharding.reshard(x_bar, x.aval.sharding)
    return [x_bar]


reshard_p.def_impl(lambda x, host, **static: host.eager(x, **static))
batching.primitive_batchers[reshard_p] = _vectorized
_lowering = mlir.lower_fun(lambda x, host, **static: host.lowered(x, **static), False)
mlir.register_lowering(reshard_p, _lowering)
ad.deflinear2(reshard_p, _transposed)
ad.primitive_jvps[reshard_p] = _differentiated
