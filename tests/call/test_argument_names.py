"""Misspelt keyword arguments of what users call first, each with the closest name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from strategies import message

import shardwright as sw

CALLS: dict[str, tuple[Any, dict[str, object], str, str]] = {
    "Reshard": (
        sw.Reshard,
        {"shape": (8, 8), "sorce": "P()"},
        "; did you mean source?",
        "shape, dtype, source, target, source_split, target_split, transposed, mesh, target_mesh",
    ),
    "Matmul": (
        sw.Matmul,
        {"lhs": ((8, 8), "P()"), "rsh": ((8, 8), "P()")},
        "; did you mean rhs?",
        "dtype, lhs, rhs, out, out_dtype, mesh",
    ),
    "Stored": (
        sw.Stored,
        {"mesh": "x=2", "dtyp": "float32"},
        "; did you mean dtype?",
        "mesh, tensors, layout, dtype, shapes, partial",
    ),
    "Model": (sw.Model, {"dtyp": "float32"}, "; did you mean dtype?", "tensors, dtype"),
    "Rules": (sw.Rules, {"rule": {}}, "; did you mean rules?", "mesh, rules"),
    "sync": (
        sw.sync,
        {"mem_limit": 1},
        "; did you mean memory_limit?",
        "model, source, target, memory_limit",
    ),
    "reshard": (sw.reshard, {"placements": ()}, "", "x, target, source"),
}


@pytest.mark.parametrize("name", CALLS)
def test_misspelt(name: str) -> None:
    call, given, near, known = CALLS[name]
    *_, misspelt = given
    assert message(lambda: call(**given)) == (
        f"sw.{name}: unknown argument{near}\ngot: {misspelt}\nexpected: one of {known}"
    )
    assert ", ".join(inspect.signature(call).parameters) == known
