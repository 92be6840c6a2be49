"""Relayouts in JAX: boxes are slices of the buffer, seen in a shape in which loops go over a box;
gradients are refused unless asked for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import shardwright as sw
from shardwright.codegen.checks.load import load

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


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_gradients_are_refused(dtype: str, tmp_path: Path) -> None:
    """Where a module was emitted without them; integers need no refusal."""
    tensors = {"q": (4, 2), "k": (2, 2)}
    source = sw.Stored("one=1", tensors, {"q": "q", "k": "k"}, dtype)
    target = sw.Stored("one=1", tensors, "stack(0, k, q)", dtype)
    text = sw.emit(sw.Relayout(source, target), ("jax_xla",)).files("it")["jax_xla.py"]
    assert ("custom_jvp" in text, "custom_vjp" in text) == (dtype == "float32", False)
    (tmp_path / "moved.py").write_text(text)
    module, mesh = load(tmp_path / "moved.py"), jax.make_mesh((1,), ("one",))
    given = {name: np.ones(shape, dtype) for name, shape in tensors.items()}
    given = jax.device_put(given, module.source_sharding(mesh))
    assert module.reshard(given, mesh)["buffer"].shape == (6, 2)
    if dtype == "float32":
        with pytest.raises(NotImplementedError) as caught:
            jax.grad(lambda x: module.reshard(x, mesh)["buffer"].sum())(given)
        assert str(caught.value) == (
            "this module has no gradient: emit it with gradient=True (--gradient), or pass "
            "stop_gradient(x) to reshard"
        )
