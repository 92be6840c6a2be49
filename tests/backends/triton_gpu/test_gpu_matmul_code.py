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
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves.matmul.plan import plan_matmul

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

UNITS = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05", "gfx942": "v_mfma"}
"""What multiplies bfloat16."""

OTHERS = {
    "float16": UNITS,
    "int8": UNITS | {"sm_100": "mma.sync"},  # tcgen05 has none of integers in Triton
    "float32": {"sm_80": "fma", "sm_90": "fma", "sm_100": "fma", "gfx942": "v_mfma"},  # exactly
}
"""What multiplies other types."""

TMA = {"sm_90", "sm_100"}
"""What copies blocks of 16-bit operands by TMA."""


def check_code(module: ModuleType, target: str, unit: str) -> None:
    """No kernel spills; one multiplies by a unit, of what TMA has copied where there is that; the
    others move 16 bytes at a time."""
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
    units = units_of(found["multiply"])
    assert units.get(unit, 0) > 0
    assert ("tma" in units) == (target in TMA and "16" in module.DTYPE)
    assert not units.keys() >= {"tma", "cp.async"}
    if target.startswith("sm_") and "acquire" in units:
        assert ("poll" in units) == hasattr(triton.language, "atomic_poll")
    if target.startswith("sm_"):
        for name, assembly in found.items():
            check_order_of_threads(name, assembly)
    if "tma" in units:
        check_fences(found["multiply"])


def check_order_of_threads(name: str, assembly: str) -> None:
    """All threads meet between the last store and a release, and between an acquire and a load.
    Polls are loads: none adds to a flag."""
    assert not re.search(r"atom\.\S*acq\S*\.add", assembly), name
    words = re.findall(
        r"st\.global|cp\.async|bar\.sync|ld\.global\.\S*acquire|atom\S*\.sys\.release", assembly
    )
    for at, word in enumerate(words):
        if word.startswith("atom"):
            assert words[at - 1] == "bar.sync" or name == "announce", name
        if "acquire" in word:
            assert words[at + 1] == "bar.sync", name


def check_fences(assembly: str) -> None:
    """What was acquired is fenced before TMA, which reads memory in a way of its own, copies it."""
    words = re.findall(
        r"cp\.async\.bulk|fence\.proxy\.async\.global|ld\.global\.\S*acquire", assembly
    )
    is_fenced = True
    for word in words:
        if "acquire" in word:
            is_fenced = False
        if word.startswith("fence"):
            is_fenced = True
        assert is_fenced or not word.startswith("cp")


@pytest.mark.slow
def test_a_missing_fence_is_found(tmp_path: Path) -> None:
    case = write_module(plan_matmul(gathered("bfloat16"), listed=0), "m", tmp_path,
                        backend="triton_gpu")  # fmt: skip
    file = case.module
    right = "fence(epoch)"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, "pass"))
    with pytest.raises(AssertionError):
        check_code(load(case.module), "sm_90", "wgmma")


def gathered(dtype: str) -> sw.Matmul:
    """A matmul of rows that blocks do not divide, but for the ends of operands."""
    sides = ((1024, 1008), '[{"x"}, {}]'), ((1008, 2048), '[{}, {"x"}]')
    return sw.Matmul(dtype, *sides, '[{}, {"x"}]', mesh=sw.Mesh({"x": 4}))


@pytest.mark.parametrize("target", UNITS)
@pytest.mark.parametrize("kind", ["gather", "scatter"])
def test_kernels_of_the_corpus(kind: str, target: str) -> None:
    module = load(ROOT / "generated" / f"matmul_{kind}_gpu" / "triton_gpu.py")
    check_code(module, target, UNITS[target])


@pytest.mark.slow
@pytest.mark.parametrize("target", UNITS)
@pytest.mark.parametrize("dtype", OTHERS)
def test_kernels_of_other_types(dtype: str, target: str, tmp_path: Path) -> None:
    case = write_module(plan_matmul(gathered(dtype), listed=0), "m", tmp_path, backend="triton_gpu")
    check_code(load(case.module), target, OTHERS[dtype][target])


@pytest.mark.slow
@pytest.mark.parametrize("target", UNITS)
def test_kernels_that_add_terms(target: str, tmp_path: Path) -> None:
    sides = ((1024, 1008), '[{}, {}], unreduced={"x"}'), ((1008, 2048), "[{}, {}]")
    given = sw.Matmul("bfloat16", *sides, '[{"x"}, {}]', mesh=sw.Mesh({"x": 4}))
    case = write_module(plan_matmul(given, listed=0), "m", tmp_path, backend="triton_gpu")
    check_code(load(case.module), target, UNITS[target])
