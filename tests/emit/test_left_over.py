"""Emitted kernels and index functions have no tests, terms or names that emission could decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cases import kept_reshard, random_reshard
from left_over import left_over
from places import ROOT

from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Reshard

MODULES = sorted(
    path
    for path in (ROOT / "generated").glob("*/*.py")
    if path.stem != "__init__" and path.parent.stem != "_support"
)
Draw = Callable[[int], Reshard]

PLANTED = """
@triton.jit
def kernel(peers, out, receiver, me, BLOCK):
    rest = receiver // 2 * 6 - 6 * (receiver // 2)
    index = place % 1
    if receiver < receiver + 1:
        copy(peers, out, index * 3, BLOCK)
"""


def test_each_kind_is_found() -> None:
    assert left_over(PLANTED) == [
        "kernel: `receiver // 2 * 6 - 6 * (receiver // 2)` is 0",
        "kernel: `place % 1` is 0",
        "kernel: `receiver < receiver + 1` is decided",
        "kernel: `me` is unused",
        "kernel: `rest` is unused",
    ]


def test_generated_modules_have_nothing_left_over() -> None:
    found = {str(path.relative_to(ROOT)): left_over(path.read_text()) for path in MODULES}
    assert len(found) > 80
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("draw", "seed", "backend"),
    [
        pytest.param(random_reshard, 0, "triton_gpu", id="an outer index of one value"),
        pytest.param(random_reshard, 5, "triton_gpu", id="a source number of another name"),
        pytest.param(random_reshard, 11, "triton_gpu", id="an empty target shard"),
        pytest.param(kept_reshard, 2, "pallas_tpu", id="a kernel that copies whole shards"),
    ],
)
def test_what_was_left_over_once(draw: Draw, seed: int, backend: str) -> None:
    text = emit(draw(seed), (backend,)).files("case")[f"{backend}.py"]
    assert left_over(text) == []
