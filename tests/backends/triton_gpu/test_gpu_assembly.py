"""Kernels of the corpus as the compiler makes them: what the table of `bench` says, held."""

from __future__ import annotations

import pytest
from gpu_cases import CASES

from shardwright.codegen.spec.config import load_toml
from shardwright.ir import Reshard

pytest.importorskip("torch")
pytest.importorskip("triton")


def corpus() -> dict[str, Reshard]:
    from bench.gpu_assembly import CORPUS

    return {d.name: d.reshard() for path in CORPUS for d in load_toml(path)}


SHARES = {
    "llama3_70b_wq_fsdp_to_tp": 1.0,
    "gpt2_vocab_uneven": 1.0,  # rows of 384 floats; that 50257 rows do not divide is no matter
    "kv_cache_tp4_to_tp2": 1.0,
    "xla_15207": 1.0,  # tiles of 4x4x8 floats, smaller than a program
    "uneven_both_sides": 0.0,  # rows of 29 floats, 116 bytes apart
    "rows": 512 / 1023,  # in the source, rows of 512 floats lie in lines, those of 511 do not
}


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize(("target", "times"), [("sm_90", 1), ("sm_90", 4), ("gfx942", 1)])
def test_shares_of_bytes(name: str, target: str, times: int) -> None:
    """Of few programs, which are larger, too."""
    from bench.gpu_assembly import measured

    row = measured((corpus() | CASES)[name], target, times)
    assert row.share == (SHARES[name], SHARES[name])
    assert (row.code.stack_bytes, row.code.looped_divisions) == (0, 0)
    assert row.code.registers is not None
    assert row.code.registers <= 64  # so that 1024 threads fit a multiprocessor
    assert bool(row.why) == (SHARES[name] < 1)
