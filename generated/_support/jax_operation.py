"""A reshard as one operation of JAX's, which vmap and derivatives go through.

`host`: what is moved (`OneOrder`, `TwoOrders`); `source`, `target`: meshes with the axes that
shardings name. The derivative of a reshard is the reshard itself, and its transpose the reverse
reshard, of the module beside.
"""

import functools
import importlib
import sys

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType

from .jax_meshes import apart

# By what a module that moves floats says of derivatives.
NO_DERIVATIVE = {
    "none": "the source array is differentiated, and the reverse reshard is not here: emit with "
    "--gradient, or stop_gradient(x) before reshard",
    "extremum": "the maximum or minimum of terms has no derivative where terms are equal: "
    "stop_gradient(x) before reshard, or use a function of your own that has one",
}

reshard_p = Primitive("reshard")


class Reverse:
    """The module of the reverse reshard: `backward`, beside the module `name`. A word of
    NO_DERIVATIVE in its place says why there is none."""

    def __init__(self, name, backward):
        self._name, self._backward = name, backward

    def refuse(self):
        """Raise NotImplementedError where there is no derivative."""
        if self._backward in NO_DERIVATIVE:
            raise NotImplementedError(NO_DERIVATIVE[self._backward])

    @functools.cached_property
    def host(self):
        """What moves cotangents. Raises ImportError where no such module stands beside."""
        package = self._name.rpartition(".")[0]
        name = f"{package}.{self._backward}" if package else self._backward
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            said = f"the derivative of reshard needs the reverse reshard: no module {name}"
            raise ImportError(said) from None
        ours = sys.modules[self._name]
        there = module.SHAPE, module.DTYPE, module.TARGET_MESH, module.TARGET
        here = ours.SHAPE, ours.DTYPE, ours.SOURCE_MESH, ours.SOURCE
        back = module.SOURCE_MESH, module.SOURCE
        if (*there, *back) != (*here, ours.TARGET_MESH, ours.TARGET):
            raise ImportError(f"not the reverse of this reshard: {name}")
        return module._HOST


def _eager(x, host, **static):
    return host.eager(x, **static)


def _lowered(x, host, **static):
    return host.lowered(x, **static)


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
    static["host"].reverse.refuse()
    (x,), (tangent,) = primals, tangents
    return reshard_p.bind(x, **static), reshard_p.bind(ad.instantiate_zeros(tangent), **static)


def _transposed(y, x, *, host, source, target, interpret, collective_id):
    """Move the cotangent of the result back."""
    host.reverse.refuse()
    collective_id = None if collective_id is None else collective_id ^ 1
    x_bar = host.reverse.host.bind(y, target, source, interpret, collective_id)
    if AxisType.Explicit in x.aval.sharding.mesh.axis_types:
        with apart(x_bar):
            x_bar = jax.sharding.reshard(x_bar, x.aval.sharding)
    return [x_bar]


reshard_p.def_impl(_eager)
reshard_p.def_effectful_abstract_eval(_type)
batching.primitive_batchers[reshard_p] = _vectorized
mlir.register_lowering(reshard_p, mlir.lower_fun(_lowered, multiple_results=False))
ad.deflinear2(reshard_p, _transposed)
ad.primitive_jvps[reshard_p] = _differentiated
