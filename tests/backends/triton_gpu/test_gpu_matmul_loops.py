"""Loops of the Triton matmul kernels over the elements of shards, which may be almost 2^31."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matmuls import write_module

import shardwright as sw
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves.matmul.plan import plan_matmul

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

MATMULS = {
    "offer": ('[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'),
    "add": ('[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]'),
}
"""Shardings by the kernel that they need."""

LOOP = re.compile(r"scf\.for .* step (%\S+)\s+(?:iter_args\(.*\) -> \(.*\)\s+)?: (i\d+)")


def loops_of(name: str, folder: Path) -> list[tuple[str, str]]:
    """Step and counter type of every loop of a kernel, in Triton's IR of it for 32-bit sizes."""
    from shardwright.codegen.backends.triton_gpu.compile.matmul import _sources
    from shardwright.codegen.backends.triton_gpu.compile.run import gpu

    lhs, rhs, out = MATMULS[name]
    given = sw.Matmul("bfloat16", ((64, 64), lhs), ((64, 64), rhs), out, mesh=sw.Mesh({"x": 2}))
    case = write_module(plan_matmul(given, listed=0), "m", folder, backend="triton_gpu")
    source, options = _sources(load(case.module))[name]
    sizes = [each for each in source.fn.arg_names if each.endswith("size")]
    assert sizes
    assert {source.signature[each] for each in sizes} == {"i32"}
    text = triton.compile(source, target=gpu("sm_90"), options=options).asm["ttir"]
    assert text.count("scf.for") == len(LOOP.findall(text))
    return LOOP.findall(text)


@pytest.mark.parametrize("name", MATMULS)
def test_no_loop_passes_the_end_of_32_bits(name: str, tmp_path: Path) -> None:
    """A 32-bit counter that steps by 1 ends at its bound; one that steps by more may pass it."""
    loops = loops_of(name, tmp_path)
    assert any(kind == "i64" for _, kind in loops)
    assert [step for step, kind in loops if kind == "i32" and step != "%c1_i32"] == []
