"""The kernels of Triton matmuls as the compiler makes them: by what units they multiply, that no
register is spilled, and in what order they store, tell, wait and load."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from matmuls import write_module
from places import ROOT

import shardwright as sw
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.codegen.verify.load import load

pytest.importorskip("torch")
pytest.importorskip("triton")

UNITS = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05", "gfx942": "v_mfma"}
"""What multiplies bfloat16."""

OTHERS = {
    "float16": UNITS,
    "int8": UNITS | {"sm_100": "mma.sync"},  # tcgen05 has none of integers in Triton
    "float32": {"sm_80": "fma", "sm_90": "fma", "sm_100": "fma", "gfx942": "v_mfma"},  # exactly
}
"""What multiplies other types."""


def check_code(module: ModuleType, target: str, unit: str) -> None:
    """No kernel spills; one multiplies by a unit; the others move 16 bytes at a time."""
    from shardwright.codegen.backends.triton_gpu.compile.matmul import compiled_kernels, units_of
    from shardwright.codegen.backends.triton_gpu.compile.run import code_of, kinds

    found = {}
    for name, kernel, seconds in compiled_kernels(module, target):
        code, assembly = code_of(kernel, seconds), kernel.asm[kinds(kernel)[1]]
        assert code.stack_bytes == 0, name
        found[name] = assembly
        # A program of 256 threads copies 2,048 elements: of int8 they have 8 bytes each.
        if name in ("offer", "pull", "add") and module.DTYPE != "int8":
            assert code.wide_stores == code.stores, name
    assert units_of(found["multiply"]).get(unit, 0) > 0
    if target.startswith("sm_"):
        for name, assembly in found.items():
            check_order_of_threads(name, assembly)


def check_order_of_threads(name: str, assembly: str) -> None:
    """All threads meet between the last store and a release, and between an acquire and a load."""
    words = re.findall(
        r"st\.global|cp\.async|bar\.sync|ld\.global\.\S*acquire|atom\S*\.sys\.release", assembly
    )
    for at, word in enumerate(words):
        if word.startswith("atom"):
            assert words[at - 1] == "bar.sync" or name == "announce", name
        if "acquire" in word:
            assert words[at + 1] == "bar.sync", name


@pytest.mark.parametrize("target", UNITS)
@pytest.mark.parametrize("kind", ["gather", "scatter"])
def test_kernels_of_the_corpus(kind: str, target: str) -> None:
    module = load(ROOT / "generated" / f"matmul_{kind}_gpu" / "triton_gpu.py")
    check_code(module, target, UNITS[target])


@pytest.mark.slow
@pytest.mark.parametrize("target", UNITS)
@pytest.mark.parametrize("dtype", OTHERS)
def test_kernels_of_other_types(dtype: str, target: str, tmp_path: Path) -> None:
    """Of rows that blocks do not divide."""
    mesh = sw.Mesh({"x": 4})
    sides = ((1000, 1008), '[{"x"}, {}]'), ((1008, 2048), '[{}, {"x"}]')
    given = sw.Matmul(dtype, *sides, '[{}, {"x"}]', mesh=mesh)
    case = write_module(plan_matmul(given, listed=0), "m", tmp_path, backend="triton_gpu")
    check_code(load(case.module), target, OTHERS[dtype][target])
