"""What pull kernels copy, followed at full size: planted in emitted modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cases import describe, random_reshard
from gpu_cases import CASES
from lone import alone

from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Mesh, Reshard

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from shardwright.codegen.backends.triton_gpu.verify import copies


def said(reshard: Reshard, folder: Path, words: str = "", instead: str = "") -> str:
    """What is said of the module of a reshard with words of it changed."""
    text = alone(plan(reshard), "triton_gpu")
    edited = re.sub(words, instead, text, count=1) if words else text
    assert (edited == text) == (not words), "the module has none of the words"
    path = folder / "triton_gpu.py"
    path.write_text(edited)
    try:
        return ", ".join(copies.check_copies(load(path)._HOST.phases))
    except MismatchError as error:
        return str(error)


@pytest.mark.parametrize("reshard", [*CASES.values(), *map(random_reshard, range(5))])
def test_emitted_kernels_copy_just_what_is_sent(reshard: Reshard, tmp_path: Path) -> None:
    found = said(reshard, tmp_path)
    assert found.removesuffix(", order of copies") == "copies", describe(reshard)


def uneven() -> Reshard:
    """A reshard whose tiles differ in size: 7x6 on 2x3."""
    mesh = Mesh({"x": 2, "y": 3})
    return Reshard(
        (7, 6), "int32", mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    )


def large(devices: int = 8, shape: tuple[int, int] = (2048, 1024)) -> Reshard:
    """A reshard from rows to columns."""
    mesh = Mesh({"x": devices})
    return Reshard(shape, "bfloat16", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]'))


WRONG = r"device {}: wrong copy by the kernel: RowCopy\(.*\)( of the first)?"
FAULTS = {
    "start_off_by_one": (
        uneven(),
        r"read=\(low0 - from0\)",
        "read=(low0 - from0 - 1)",
        r"device 0: wrong copy by the kernel: RowCopy\(sender=0, read=-2, .*\)",
    ),
    "tile_left_out": (
        uneven(),
        r"Tiles\(number=4",
        "Tiles(number=3",
        r"device 1: the kernel does not fill \(4, 6, 0, 2\)",
    ),
    "nothing_read": (large(), r"(\n +)read=[^\n]*,", r"\1read=0,", WRONG.format(1)),
    "written_elsewhere": (large(), r"(\n +)write=", r"\1write=1024 + ", WRONG.format(0)),
    "one_sender": (large(), r"a0 = .*", "a0 = receiver", "device 0: the kernel does not fill .*"),
    "no_such_sender": (large(), r"a0 = .*", "a0 = 8", WRONG.format(0)),
    "too_few_rows": (large(), r"rows=256", "rows=255", "device 0: the kernel does not fill .*"),
    "rows_too_near": (large(), r"read_row=1024", "read_row=128", WRONG.format(0)),
    "tile_too_small": (large(), r"largest=\(256,", "largest=(128,", WRONG.format(0)),
    "units_too_wide": (large(), r"width=4", "width=256", WRONG.format(0)),
    "no_ends": (CASES["skew"], r"copy_some_lines(\(\n +shard_at)", r"copy_rows\1", WRONG.format(0)),
    "block_of_another": (large(), r"tl.cast\(block", "tl.cast(block // 2", WRONG.format(0)),
    "copied_twice": (
        large(),
        r"(?s)\n( +)(copy_rows\(\n.*?\n\1\)\n)",
        r"\n\1\2\1\2",
        r"device 0: one program copies twice: RowCopy\(.*\), RowCopy\(.*\)",
    ),
    "not_together_there": (
        large(),
        r"together=\(\"target\",\)",
        'together=("source", "target")',
        r"device 0: \(0, 256, 0, 128\) is not contiguous in its source shard",
    ),
    "what_integers_cannot_do": (
        large(),
        r"a0 = ",
        "a0 = tl.load(peers) + ",
        "device 0: the kernel cannot be followed: .* has no attribute 'load'",
    ),
}
"""By name: the reshard, words of its module, what stands there instead, and what is said."""


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, tmp_path: Path) -> None:
    reshard, words, instead, expected = FAULTS[name]
    found = said(reshard, tmp_path, words, instead)
    assert re.fullmatch(expected, found), found


def test_of_many_programs_those_of_some_devices_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "FOLLOWED", 256)
    assert said(large(64), tmp_path) == "copies at 5 of 64 devices"


@pytest.mark.slow
def test_modules_of_any_size_are_followed(tmp_path: Path) -> None:
    """A fault that an interpreter finds, one of a tensor too large for that, and one on a mesh too
    large for that."""
    emit(uneven(), ("triton_gpu",)).write(tmp_path / "small")
    for name, reshard in (("large", large()), ("wide", large(72, (72, 72)))):
        emit(reshard, ("triton_gpu",)).write(tmp_path / name)
        module = tmp_path / name / "triton_gpu.py"
        text = module.read_text()
        wrong = re.sub(r"rows=(\d+),\n", r"rows=\1 - (receiver == 3),\n", text, count=1)
        assert wrong != text
        module.write_text(wrong)
    small, *others = sorted(verify(tmp_path), key=lambda report: report.verdict != "ok")
    assert (small.name, small.verdict) == ("small", "ok")
    assert {"copies", "order of copies", "order of ranks"} <= {*small.checks}
    assert [(r.name, r.verdict) for r in others] == [("large", "failed"), ("wide", "failed")]
    for report in others:
        assert re.fullmatch(r"device 3: the kernel does not fill \(.*\)", report.detail)
