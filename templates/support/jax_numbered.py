"""The part of a self-check that moves data: numbered elements."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np


def check_moves(host, mesh, move):
    """Move numbered elements by `move`, a function of a source array on a mesh and of
    `interpret`. Exit unless every target shard is correct."""
    for given, wanted in numbered(host):
        x = filled(host, given, mesh)
        judge(host, host.program.watched(functools.partial(move, x)), wanted)


def filled(host, given, mesh):
    """Return the source array of a tensor. Fill its padding with ones; a reshard must not read
    them."""
    x = np.array(host.pad(given))
    if host.paddings:
        x[host.paddings[0].where()] = 1
    return jax.device_put(x, host.source.on(mesh))


def judge(host, y, wanted):
    """Exit unless a target array holds the values `wanted` and zero padding."""
    y = np.asarray(y)
    if host.paddings and y[host.paddings[1].where()].any():
        raise SystemExit("nonzero padding in a target shard")
    found = np.asarray(host.unpad(jnp.asarray(y)))
    if host.program.terms:
        from .jax_term_numbers import tensor_of  # only if partial results move

        found = tensor_of(host, found)
    if not np.array_equal(found, np.asarray(wanted)):
        raise SystemExit("wrong target shards")


def numbered(host):
    """Yield pairs of tensors: the argument of `pad`, and the expected result. There is a pair
    for each digit of the element numbers, in a base whose digits the dtype represents exactly."""
    number = np.arange(math.prod(host.shape), dtype=np.int32).reshape(host.shape)
    few = {"bool": 2, "int8": 100, "uint8": 100}.get(host.dtype.name, 4)
    base = {1: few, 2: 100}.get(host.dtype.itemsize, max(number.size, 1))
    more = True
    while more:
        tensor, number = number % base, number // base
        given = wanted = tensor
        if host.program.terms:
            from .jax_term_numbers import as_terms  # only if partial results move

            given, wanted = as_terms(host, tensor)
        yield given.astype(host.dtype), wanted.astype(host.dtype)
        more = bool(number.any())
