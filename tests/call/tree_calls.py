"""`sw.reshard` of trees on eight CPU devices: one exchange, and what is wrong with a tree. Prints
"ok"; exit code 1 and a traceback where something is wrong."""

from __future__ import annotations

import logging
import os
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

DEVICES = np.array(jax.devices())
MESH = Mesh(DEVICES[:4].reshape(2, 2), ("x", "y"))
SERVER = Mesh(DEVICES[[7, 3, 5, 6]], ("tp",))


EACH = "there must be one target for each leaf of x"


class Layer(NamedTuple):
    """A branch with named fields."""

    w: Any
    b: Any


class Said(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def put(x: Any, spec: P, mesh: Mesh = MESH) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh, spec))


def main() -> None:
    """Move a tree to another mesh, then within a mesh, then wrongly."""
    said = Said()
    logging.getLogger("shardwright").addHandler(said)
    logging.getLogger("shardwright").setLevel(logging.INFO)
    explicit = Mesh(MESH.devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    whole = {
        "layers": [
            Layer(np.arange(64.0, dtype="float32").reshape(8, 8) + n, np.arange(8) + n)
            for n in range(3)
        ],
        "head*": (np.arange(32, dtype="float16").reshape(4, 8),),
        "none": None,
    }
    tree = jax.tree.map(lambda x: put(x, P(*("y", "x")[: x.ndim])), whole)
    tree["layers"][1] = Layer(put(whole["layers"][1].w, P("x", "y"), explicit), tree["layers"][1].b)
    target = {
        "layers": NamedSharding(SERVER, P("tp")),
        "head*": [NamedSharding(SERVER, P(None, "tp"))],
    }
    for _ in range(2):
        moved = sw.reshard(tree, target)
        check(moved, whole, target)
    assert len(said.lines) == 1, said.lines
    assert said.lines[0].startswith("7 arrays in one exchange: jax_model, the busiest device")
    same = sw.reshard(moved, NamedSharding(SERVER, P()))
    check(same, whole, {"layers": NamedSharding(SERVER, P()), "head*": NamedSharding(SERVER, P())})
    on_mesh = sw.reshard(tree["layers"][0], P("x"))
    assert [x.sharding for x in on_mesh] == [NamedSharding(MESH, P("x"))] * 2
    inside = jax.jit(lambda t: sw.reshard(t, NamedSharding(MESH, P("x")), source=P("y")))
    check(
        {"a": inside(tree["layers"][0])},
        {"a": whole["layers"][0]},
        {"a": NamedSharding(MESH, P("x"))},
    )
    mistakes(tree["layers"][0])
    print("ok")


def check(moved: Any, whole: Any, target: Any) -> None:
    """All leaves are whole, and where they were to go."""
    assert jax.tree.structure(moved) == jax.tree.structure(whole)
    for (path, y), x in zip(
        jax.tree_util.tree_leaves_with_path(moved), jax.tree.leaves(whole), strict=True
    ):
        np.testing.assert_array_equal(y, x)
        wanted = target[path[0].key]
        assert y.sharding == (wanted[0] if isinstance(wanted, list) else wanted)


def mistakes(layer: Layer) -> None:
    """What is said names the leaf."""
    place = NamedSharding(MESH, P("x"))
    for given, target, text in (
        (layer, {"w": place}, f"target: {EACH}\ngot: no target for w, b\n"),
        (layer, Layer(place, None), f"target: {EACH}\ngot: no target for b\n"),
        ([*layer], [place, place, place], "got: a target for 2, which x lacks"),
        (layer, "x", "target, w: the target of a jax.Array must be a JAX sharding\ngot: 'x'"),
        (layer, NamedSharding(MESH, P("x", "y")), "target, b: a sharding must not be longer than"),
        (
            {"w": layer.w, "step": "three"},
            place,
            "x, step: every leaf of the tree must be an array with a sharding\ngot: 'three'",
        ),
    ):
        with pytest.raises(sw.InputError) as caught:
            sw.reshard(given, target)
        assert text in str(caught.value), caught.value


if __name__ == "__main__":
    main()
