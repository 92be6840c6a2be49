"""Kernels that wait once for all tiles that come, and for all that leave, where replicas share what
they send, or meshes differ: executed, with race detection, and through the TPU compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lone import alone
from running import check
from test_compile_widths import check_compile

from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard
from shardwright.ir.plan import Plan

EIGHT, SIX = Mesh({"x": 2, "y": 4}), Mesh({"x": 3, "y": 2})
SOME, OTHER = Mesh({"x": 5}, [4, 1, 0, 7, 2]), Mesh({"x": 4}, [7, 2, 0, 5])


def _between(
    shape: tuple[int, ...], dtype: str, source: str, target: str, mesh: Mesh, other: Mesh | None
) -> Reshard:
    return Reshard(shape, dtype, mesh.sharding(source), (other or mesh).sharding(target))


CASES = {
    "replicas": _between((1024, 512), "float32", '[{"y"}, {}]', '[{}, {"y"}]', EIGHT, None),
    "three of two": _between((96, 768), "int8", '[{"x"}, {}]', '[{}, {"x"}]', SIX, None),
    "pieces": _between((1024, 256), "bfloat16", '[{"x"}, {}]', '[{"y":(2)2}, {}]', EIGHT, None),
    "five to four": _between((160, 2560), "int64", '[{"x"}, {}]', '[{}, {"x"}]', SOME, OTHER),
    "planes": _between((16, 32, 300), "float32", '[{"y"}, {}, {}]', '[{}, {"y"}, {}]', EIGHT, None),
}


def made(name: str) -> Plan:
    return plan(CASES[name], "direct")


@pytest.mark.exhaustive
def test_they_run_right(tmp_path: Path) -> None:
    for name in CASES:
        text = alone(made(name), "pallas_tpu")
        assert "Form: direct;" in text, name
        assert "(copy.wait_send)" in text, name
    check("pallas_tpu", [made(name) for name in CASES], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("topology", ["v5e:4x4", "v5p:2x2x2"])
def test_they_compile_in_both_widths(
    topology: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_compile_widths.TOPOLOGY", topology)
    names = ("replicas", "planes") if topology == "v5e:4x4" else ("pieces", "five to four")
    assert "direct" in check_compile([made(name) for name in names], tmp_path)


def test_a_tile_too_little_is_found_without_data(tmp_path: Path) -> None:
    """By the self-check: what comes is not what a target shard has."""
    text = alone(made("replicas"), "pallas_tpu")
    wrong, count = re.subn(
        r"def senders\(position\):\n(.*\n)    return 0, 4",
        r"def senders(position):\n\1    return 0, 3",
        text,
    )
    assert count == 1
    (tmp_path / "pallas_tpu.py").write_text(wrong)
    said = r"^device 0: pieces have 98304 elements, the target shard 131072$"
    with pytest.raises(SystemExit, match=said):
        load(tmp_path / "pallas_tpu.py")._HOST.self_check()
