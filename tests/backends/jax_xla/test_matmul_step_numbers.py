"""Constants of a module whose loop takes the place of the first movement of the result."""

from __future__ import annotations

import re

from shardwright.codegen.operations.emit.choice import plan
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Mesh
from shardwright.ir.matmul import Matmul


def test_every_constant_that_is_used_is_defined() -> None:
    mesh = Mesh({"x": 8})
    lhs = (2, 1, 5), mesh.sharding('[{}, {"x"}, {}]')
    rhs = (2, 5, 12), mesh.sharding('[{"x"}, {}, {}]')
    matmul = Matmul("float32", lhs, rhs, mesh.sharding('[{}, {"x"}, {}]'))
    files = emit(plan(matmul, loop="one"), ("jax_xla",)).files("product")
    text = files["jax_xla.py"]
    used = set(re.findall(r"\b(?:BEFORE|AFTER|SENDERS)_\d+", text.split("def _multiply")[1]))
    assert used
    assert used == set(re.findall(r"^((?:BEFORE|AFTER|SENDERS)_\d+) =", text, re.M))
