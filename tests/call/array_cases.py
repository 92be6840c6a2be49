"""`sw.reshard` of the arrays of JAX's own tests on eight CPU devices: element types, kinds of
memory, unreduced and reduced axes, targets, weak types, `vmap`. JAX's own reshard is the judge.

Arguments: names of tasks. Prints "ok" after each. Exit code 1 and a traceback where something is
wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from peer_tables import SPECS

import shardwright as sw

AUTO, EXPLICIT = (
    jax.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=(kind,) * 3)
    for kind in (AxisType.Auto, AxisType.Explicit)
)
WHOLE = np.arange(64.0, dtype=np.float32).reshape(8, 8)
SOURCE, TARGET = P("x", "y"), P("y", "x")

UNKNOWN = (
    WHOLE.astype(np.complex64),
    jnp.asarray(WHOLE % 7, jnp.int4),
    jnp.asarray(WHOLE % 7, jnp.float8_e4m3b11fnuz),
    jax.random.split(jax.random.key(0), (8, 8)),
    np.zeros((0, 8), np.float32),
)
"""What modules do not know."""

KINDS = ("device", "pinned_host")

TERMS = (
    # source, target
    (P(unreduced={"x"}), P()),
    (P(unreduced={"x"}), P("x")),
    (P(unreduced={"x"}), P("y", unreduced={"x"})),
    (P("y", unreduced={"x"}), P(None, "y", unreduced={"x"})),
    (P(), P(unreduced={"x"})),
    (P("x", "y"), P("y", unreduced={"x"})),
    (P("x", "y"), P(None, reduced={"x"})),
    (P(reduced={"x"}), P("x", "y")),
)


def same(found: Any, wanted: Any) -> None:
    """The shards, type and memory of both arrays are alike."""
    assert jax.typeof(found) == jax.typeof(wanted), (jax.typeof(found), jax.typeof(wanted))
    assert found.sharding.memory_kind == wanted.sharding.memory_kind
    if jnp.issubdtype(found.dtype, jax.dtypes.prng_key):
        found, wanted = jax.random.key_data(found), jax.random.key_data(wanted)
    for own, other in zip(found.addressable_shards, wanted.addressable_shards, strict=True):
        assert own.device == other.device
        assert (np.asarray(own.data) == np.asarray(other.data)).all(), own.device


def meshes() -> Iterator[tuple[Any, NamedSharding, NamedSharding]]:
    """Each mesh with both shardings."""
    for mesh in (AUTO, EXPLICIT):
        yield mesh, NamedSharding(mesh, SOURCE), NamedSharding(mesh, TARGET)


def unknown() -> None:
    """In a jit and not."""
    for _, before, after in meshes():
        for whole in UNKNOWN:
            x, wanted = jax.device_put(whole, before), jax.device_put(whole, after)
            same(sw.reshard(x, after), wanted)
            moved = jax.jit(lambda x: sw.reshard(x, after, source=SOURCE))  # noqa: B023
            y = moved(x)
            same(y if y.size else wanted, wanted)


def memory() -> None:
    """Out of each kind of memory and into it."""
    for _, before, after in meshes():
        for old in KINDS:
            for new in KINDS:
                here, there = before.with_memory_kind(old), after.with_memory_kind(new)
                x, wanted = jax.device_put(WHOLE, here), jax.device_put(WHOLE, there)
                same(sw.reshard(x, there, source=SOURCE), wanted)
                for source in (SOURCE, here):
                    moved = jax.jit(lambda x: sw.reshard(x, there, source=source))  # noqa: B023
                    same(moved(x), wanted)


def terms() -> None:
    """From and to unreduced and reduced axes; JAX adds an array of terms."""
    for source, target in TERMS:
        there = NamedSharding(EXPLICIT, target)
        with jax.set_mesh(EXPLICIT):
            x = jax.sharding.reshard(jax.device_put(WHOLE, NamedSharding(EXPLICIT, P())), source)
        wanted = jax.jit(lambda x: jax.sharding.reshard(x, there))(x)  # noqa: B023
        same(sw.reshard(x, there), wanted)
        same(jax.jit(lambda x: sw.reshard(x, there))(x), wanted)  # noqa: B023


def targets() -> None:
    """A device, a PartitionSpec, arrays of numpy."""
    for mesh, before, after in meshes():
        x, wanted = jax.device_put(WHOLE, before), jax.device_put(WHOLE, after)
        alone = SingleDeviceSharding(jax.devices()[3])
        same(sw.reshard(x, alone), jax.device_put(WHOLE, alone))
        same(sw.reshard(x, TARGET), wanted)
        same(sw.reshard(WHOLE, after), wanted)
        same(jax.jit(lambda x: sw.reshard(x, TARGET, source=before))(x), wanted)  # noqa: B023
        with jax.set_mesh(mesh):
            same(sw.reshard(WHOLE, TARGET), wanted)
    moved = jax.jit(lambda x: sw.reshard(x, TARGET))
    same(moved(x), wanted)


def weak() -> None:
    """A weak type stays."""
    for _, before, after in meshes():
        x = jax.jit(lambda: jnp.broadcast_to(2.0, (8, 8)), out_shardings=before)()
        assert jax.typeof(x).weak_type
        for y in (
            sw.reshard(x, after),
            jax.jit(lambda x: sw.reshard(x, after, source=SOURCE))(x),  # noqa: B023
        ):
            assert jax.typeof(y).weak_type


def mapped() -> None:
    """`vmap` over a sharded axis keeps it sharded."""
    after = NamedSharding(EXPLICIT, P("z", "y"))
    x = jax.device_put(WHOLE.reshape(4, 4, 4), NamedSharding(EXPLICIT, P("x", "y", "z")))
    for move in (
        jax.vmap(lambda x: sw.reshard(x, after)),
        jax.jit(jax.vmap(lambda x: sw.reshard(x, after))),
    ):
        y = move(x)
        assert y.sharding.spec == P("x", "z", "y"), y.sharding.spec
        assert (np.asarray(y) == np.asarray(x)).all()


def spec_of(text: str) -> P:
    """The PartitionSpec of a row of `SPECS`."""
    return P(*(tuple(entry) or None for entry in text.split(",")))


def specs() -> None:
    """All pairs of a table, in a jit and not."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    for source in map(spec_of, SPECS):
        x = jax.device_put(WHOLE, NamedSharding(mesh, source))
        for target in map(spec_of, SPECS):
            there = NamedSharding(mesh, target)
            wanted = jax.device_put(WHOLE, there)
            same(sw.reshard(x, there), wanted)
            moved = jax.jit(lambda x: sw.reshard(x, there, source=source))  # noqa: B023
            same(moved(x), wanted)


TASKS = (unknown, memory, terms, targets, weak, mapped, specs)

if __name__ == "__main__":
    for task in TASKS:
        if task.__name__ in sys.argv:
            task()
            print("ok", task.__name__, flush=True)
