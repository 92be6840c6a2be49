"""Numbered elements for the self-check of a reshard of partial sums."""

import jax.numpy as jnp
import numpy as np


def terms_of(terms, tensor, count):
    """Return `count` terms that reduce to the tensor by the operator of `terms`, a `Terms`; if
    cotangents move, return `count` copies of the tensor."""
    if terms.transposed:
        return np.stack([tensor] * count)
    # For each element one term decides the result: the others are not larger (max), are larger
    # (min), or are alternately 1 and -1 (sum).
    turn = (np.arange(count).reshape(-1, *[1] * tensor.ndim) - tensor) % count
    others = {"min": tensor + 1, "max": np.maximum(tensor - 1, 0)}
    if terms.operator in others:
        return np.where(turn == 0, tensor, others[terms.operator])
    own = tensor - (count - 1) % 2
    return np.where(turn == 0, own, np.where(turn % 2, 1, -1))


def as_terms(host, tensor):
    """Return the argument of a host's `pad` that represents a tensor, and the values expected of
    its result, without terms if these are reduced by `whole_of`."""
    source, target, terms = host.source, host.target, host.program.terms
    given = terms_of(terms, tensor, source.padded[0]) if source.terms else tensor
    made = target.terms and terms.transposed
    return given, np.stack([tensor] * target.padded[0]) if made else tensor


def whole_of(host, y, wanted):
    """Return the tensor that a result with terms represents, and `wanted` as an array of the same
    type. If cotangents move, all terms equal the tensor and are kept. Exit if padding is not
    zero."""
    terms, y = host.program.terms, np.asarray(y)
    if host.paddings and y[host.paddings[1].where()].any():
        raise SystemExit("wrong target shards, or nonzero padding")
    y = np.asarray(host.unpad(jnp.asarray(y)))
    if terms.transposed:
        return y, wanted
    return getattr(np.asarray(y, np.float32), terms.target_operator)(axis=0), wanted
