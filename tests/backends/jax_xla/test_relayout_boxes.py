"""Boxes of relayouts in JAX: slices of the buffer, seen in a shape in which loops go over a box."""

from __future__ import annotations

import math

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from shardwright.templates.support import jax_boxes  # noqa: E402

CASES = {
    # shape, first element, loops; how the buffer is seen, and the box in it
    "columns": ((4, 6), 2, [(4, 6), (3, 1)], ([4, 6], [4, 3], (0, 2))),
    "rows in one loop": ((4, 6), 6, [(12, 1)], ([4, 6], [2, 6], (1, 0))),
    "all": ((4, 6), 0, [(24, 1)], ([4, 6], [4, 6], (0, 0))),
    "every other column": ((4, 6), 1, [(4, 6), (3, 2)], ([4, 3, 2], [4, 3, 1], (0, 0, 1))),
    "an element": ((), 0, [], ([1], [1], (0,))),
    "on in the next row": ((4, 6), 4, [(4, 1)], ([24], [4], (4,))),
    "steps that rows do not have": ((4, 6), 0, [(2, 4), (2, 1)], ([6, 4], [2, 2], (0, 0))),
    "on in the next row, twice": ((4, 6), 4, [(2, 6), (4, 1)], None),
}


@pytest.mark.parametrize("name", CASES)
def test_boxes(name: str) -> None:
    shape, start, loops, expected = CASES[name]
    found = jax_boxes.box_seen(shape, np.array([start]), loops)
    if expected is None:
        assert found is None
    else:
        seen, sizes, first = found
        assert (seen, sizes, tuple(first[0])) == expected
    places = start + sum(
        np.arange(times).reshape(-1, *[1] * (len(loops) - n - 1)) * step
        for n, (times, step) in enumerate(loops)
    )
    line = np.arange(max(math.prod(shape), 1))
    starts, me = np.array([start]), 0
    part = jax_boxes.taken(line, shape, starts, me, loops)
    np.testing.assert_array_equal(np.ravel(part), np.ravel(line[places]))
    wanted = line.copy()
    wanted[places] = -1 - line[places]
    put = jax_boxes.put(line, shape, starts, me, loops, -1 - part, np.array([True]))
    np.testing.assert_array_equal(put, wanted)
