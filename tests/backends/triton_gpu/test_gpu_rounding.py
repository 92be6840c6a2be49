"""Triton's interpreter rounds to narrow floats as a GPU does, while it verifies."""

from __future__ import annotations

from pathlib import Path

import pytest
from gloo_group import printed
from matmuls import write_module

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul

pytest.importorskip("torch")
pytest.importorskip("triton")

SCRIPT = """
import sys
import rounding_casts
for name in sys.argv[1:]:
    rounding_casts.main(name)
"""


def test_casts_are_those_of_torch(tmp_path: Path) -> None:
    """How many are not, and what 7.9 becomes."""
    names = ["float8_e4m3fn", "float8_e5m2", "bfloat16"]
    assert printed(SCRIPT, names, tmp_path).splitlines() == ["0 8.0", "0 8.0", "0 7.90625"]


PRODUCTS = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from shardwright.codegen.backends.triton_gpu.verify import matmul
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase

unequal = elements = 0

def compared(found, product, dtype, original=matmul.same_product):
    global unequal, elements
    original(found, product, dtype)
    if product.within is not None:
        nearest = torch.from_numpy(product.result).to(torch.bfloat16).double().numpy()
        unequal, elements = unequal + (found != nearest).sum(), elements + found.size

matmul.same_product = compared
case = MatmulCase.from_data(json.loads(Path(sys.argv[1]).read_text()))
matmul.run_matmul(load(case.module), case)
print(elements > 500, unequal < elements / 100)
"""


def test_products_of_matmuls_are_rounded_to_nearest(tmp_path: Path) -> None:
    """Half of all products of bfloat16 would be smaller if the interpreter truncated them."""
    sides = ((16, 12), '[{"x"}, {}]'), ((12, 24), '[{}, {"x"}]')
    given = sw.Matmul("bfloat16", *sides, '[{}, {"x"}]', mesh=sw.Mesh({"x": 2}))
    case = write_module(plan_matmul(given, listed=0), "m", tmp_path, backend="triton_gpu")
    (tmp_path / "case.json").write_text(case.to_json())
    assert printed(PRODUCTS, [str(tmp_path / "case.json")], tmp_path).split() == ["True", "True"]
