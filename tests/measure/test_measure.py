"""`shardwright measure` on CPU devices: what it prints, the file, and results that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import run

import shardwright as sw
from shardwright.codegen.hardware.presets import is_processor, topology_of
from shardwright.codegen.operations.bundles.measure import Measured, measure
from shardwright.ir.errors import InputError

FORCED = "--xla_force_host_platform_device_count"


def emitted(root: Path) -> None:
    """A reshard, a sum and a matmul on two devices."""
    mesh = {"x": 2}
    moved = sw.Reshard((65, 33), "int32", '[{"x"}, {}]', '[{}, {"x"}]', mesh=mesh)
    total = sw.Reshard((64, 32), "bf16", '[{}, {}], unreduced={"x"}', '[{"x"}, {}]', mesh=mesh)
    matmul = sw.Matmul(
        "f32", ((8, 16), '[{"x"}, {}]'), ((16, 4), "[{}, {}]"), "[{}, {}]", mesh=mesh
    )
    for name, what in (("moved", moved), ("total", total), ("product", matmul)):
        sw.emit(what, backends=("jax_xla",)).write(root / name)


def test_measured_and_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"{FORCED}=2")
    root, file = tmp_path / "made", tmp_path / "here.toml"
    emitted(root)
    # It sends zeros in the place of what it has.
    wrong = root / "moved" / "jax_xla.py"
    text = wrong.read_text()
    function = r'(def _exchange\((\w+)[^\n]*\n    """.*?"""\n)'
    planted = re.sub(function, r"\1    \2 = \2 * 0\n", text, count=1, flags=re.DOTALL)
    assert planted != text
    wrong.write_text(planted)
    done = run("measure", root, "--save", file)
    assert done.code == 1
    assert "moved jax_xla: failed: device" in done.out
    rows = [line.split("│") for line in done.out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["product", "total"]
    for row in rows:
        measured, predicted, ratio, fitted, again = (
            float(each.replace(",", "")) for each in row[4:9]
        )
        assert 1.0 < measured < 1e6
        assert ratio == pytest.approx(predicted / measured, abs=0.02)
        assert again == pytest.approx(fitted / measured, abs=0.02)
        assert 0.4 < again < 2.5 or ratio < again < 1 or 1 < again < ratio
    assert "predicted on cpu:2; fitted to 2 modules:" in done.out
    found = topology_of(str(file))
    assert is_processor(found)
    assert found.bandwidth != topology_of("cpu:2").bandwidth
    before = file.read_text()
    failed = run("measure", root / "moved", "--save", file)
    assert failed.code == 2
    assert failed.err.startswith("error: nothing was measured\ngot: device")
    assert file.read_text() == before


def test_too_few_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"{FORCED}=1")
    emitted(tmp_path / "made")
    seen: list[Measured | None] = []
    with pytest.raises(InputError) as caught:
        measure([tmp_path / "made"], progress=lambda done, total, each: seen.append(each))
    assert str(caught.value) == (
        "nothing was measured\n"
        f"got: it needs 2 devices, but JAX has 1: set XLA_FLAGS={FORCED}=2\n"
        "expected: at least one module that runs on the devices of this machine"
    )
    assert [each.verdict for each in seen if each] == ["skipped"] * 3
