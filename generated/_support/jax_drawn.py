"""The part of a matmul's self-check that multiplies: random operands, and numpy's product."""

import functools
import math

import numpy as np


def check_product(host, mesh):
    """Multiply random numbers on a mesh. Exit unless every element of the product is correct."""
    given = [drawn(host, number) for number in range(2)]
    a, b = (summed(side, x) for side, x in zip(host.sides, given, strict=False))
    padded = host.pad_lhs(given[0]), host.pad_rhs(given[1])
    y = host.watched(functools.partial(host.multiplied, *padded, mesh))
    found = summed(host.out, host.unpad(np.asarray(y)))
    wanted = a.astype(np.int64) @ b.astype(np.int64)
    if not np.array_equal(found.astype(np.int64), wanted.astype(found.dtype).astype(np.int64)):
        raise SystemExit("wrong product")


def drawn(host, number):
    """Return an operand of small random numbers. Every dtype represents their products."""
    shape = host.sides[number].whole(host.shapes[number])
    terms = math.prod(shape) // math.prod(host.shapes[number])
    # Most numbers are zero, so sums are about 16: exact in 16-bit floats, in any order.
    share = 2 / (terms * math.sqrt(host.shapes[0][-1]))
    rng = np.random.default_rng(number)
    few = rng.integers(1, 4, shape) * (rng.random(shape) < share)
    return few.astype(host.dtypes[0])


def summed(side, x):
    """Return the sum of an array of terms, or any other array, as a numpy array; dtypes that numpy
    lacks become float32."""
    x = np.asarray(x).astype(np.float32) if np.asarray(x).dtype.kind == "V" else np.asarray(x)
    return x.sum(axis=0) if side.terms else x
