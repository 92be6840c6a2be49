"""The part of a self-check that moves data: numbered elements."""

import functools
import math

import jax
import numpy as np


def check_moves(host, mesh, target_mesh):
    """Move numbered elements from mesh to mesh. Exit unless every target shard is correct."""
    move = functools.partial(host.reshard, mesh=mesh, target_mesh=target_mesh)
    for given, wanted in numbered(host):
        y = host.program.watched(functools.partial(move, filled(host, given, mesh)))
        judge(host, y, wanted)


def filled(host, given, mesh):
    """Return the source array of a tensor. Fill its padding with ones; a reshard must not read
    them."""
    x = np.array(host.pad(given))
    if host.paddings:
        x[host.paddings[0].where()] = 1
    return jax.device_put(x, host.source.on(mesh))


def judge(host, y, wanted):
    """Exit unless a target array holds the tensor `wanted` and zero padding."""
    if host.target.terms:
        from .jax_term_numbers import whole_of  # only if the result has terms

        y, wanted = whole_of(host, y, wanted)
    elif host.paddings:
        wanted = host.paddings[1].add(wanted)
    if not np.array_equal(np.asarray(y), np.asarray(wanted)):
        raise SystemExit("wrong target shards, or nonzero padding")


def numbered(host):
    """Yield pairs of tensors: the argument of `pad`, and the expected result. There is a pair
    for each digit of the element numbers, in a base whose digits the dtype represents exactly."""
    number = np.arange(math.prod(host.shape), dtype=np.int32).reshape(host.shape)
    base = 2 if host.dtype == bool else {1: 4, 2: 100}.get(host.dtype.itemsize, number.size + 1)
    while True:
        given = wanted = number % base
        if host.program.terms:
            from .jax_term_numbers import as_terms  # only if partial results move

            given, wanted = as_terms(host, wanted)
        yield given.astype(host.dtype), wanted.astype(host.dtype)
        number = number // base
        if not number.any():
            return
