"""Broadcasts in `as_shardy`: the operand moves, not the larger result."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from programs import output, started
from sweeps import sampled

import shardwright as sw

MESH = sw.Mesh({"x": 4, "y": 2})
WAYS = ((), ("x",), ("y",), ("x", "y"), ("y", "x"))
"""How axes split one dimension."""
AVAL = jax.ShapeDtypeStruct((64,), "float32")
VALUES = """
import runpy, sys
import jax, numpy as np

module = runpy.run_path(sys.argv[1])
v = np.arange(64, dtype=np.float32)
rows, again, twice = module["program"](jax.make_mesh((4, 2), ("x", "y")))(v)
for found in (rows, again):
    np.testing.assert_array_equal(found, np.broadcast_to(v, (64, 64)))
np.testing.assert_array_equal(twice, 2 * v)
print("equal")
"""


def text(*dims: tuple[str, ...]) -> str:
    shown = ("{" + ", ".join(f'"{axis}"' for axis in dim) + "}" for dim in dims)
    return f"[{', '.join(shown)}]"


PAIRS = [
    (text(given), text(*result))
    for given, *result in itertools.product(WAYS, WAYS, WAYS)
    if len({*itertools.chain(*result)}) == len([*itertools.chain(*result)])
]


def received(fn: Any, given: str, result: str, mode: str) -> int:
    sides = {"in_shardings": given, "out_shardings": result}
    return sw.partition(fn, AVAL, mesh=MESH, mode=mode, **sides).bytes_received


def rows(v: Any) -> Any:
    return jnp.broadcast_to(v, (64, 64))


def columns(v: Any) -> Any:
    return jnp.broadcast_to(v[:, None], (64, 64))


@pytest.mark.parametrize("fn", sampled((rows, columns), rows))
def test_a_broadcast_that_is_a_result_moves_its_operand(fn: Any) -> None:
    """As few bytes as in `cheapest`, for all shardings; at most an operand."""
    for given, result in PAIRS:
        bytes_ = received(fn, given, result, "as_shardy")
        assert bytes_ == received(fn, given, result, "cheapest"), (given, result)
        assert bytes_ <= 64 * 4, (given, result)


def test_two_results_in_two_layouts_have_one_devices_values(tmp_path: Path) -> None:
    """The operand has another use, and the broadcast is made for one layout and moved to the
    other."""

    def fn(v: Any) -> Any:
        wide = jnp.broadcast_to(v, (64, 64))
        return wide, sw.constrain(wide, text((), ("y",))), 2 * v

    results = text(("y",), ()), text((), ("y",)), text(("x",))
    sides = {"in_shardings": text(("x",)), "out_shardings": results}
    program = sw.partition(fn, AVAL, mesh=MESH, **sides)
    sw.emit(program).write(tmp_path / "broadcasts")
    assert output(started(VALUES, 8, tmp_path / "broadcasts" / "jax_spmd.py")).strip() == "equal"
