"""The self-check of a Triton module: who sends what is written twice, by senders and by receivers,
and a fault in either, in the kernel or in what the host launches shows. Of a tensor that is too
large to move, kernel and launch are the verifier's alone: see `test_gpu_copies`."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from every_feature import EVERY
from gloo_group import printed

from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard

pytest.importorskip("triton", reason="triton is not installed")

CHECK = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(f"bundles.{name}.triton_gpu")
        print(f"{name}: ok: {module._HOST.self_check()}")
    except SystemExit as error:
        print(f"{name}: {error}")
"""
PROVED = "ok: all sends match receives and fill every target shard"
MOVED = "elements moved by the kernel and by an exchange"

FAULTS = {
    "right": ("", "", rf"{PROVED}; 42 {MOVED}"),
    "sender_left_out": (
        r"(?s)(def senders.*?)for a1 in range\((.*?) \+ 2\)",
        r"\1for a1 in range(\2 + 1)",
        r"device \d: pieces have \d elements, the target shard \d|"
        r"\(.*\) from device \d to device \d is sent there, but not expected exactly once",
    ),
    "sender_too_many": (
        r"(?s)(def senders.*?)for a1 in range\((.*?) \+ 2\)",
        r"\1for a1 in [*range(\2 + 2), \2]",
        r"\(.*\) from device \d to device \d is expected there, but not sent exactly once",
    ),
    "receiver_left_out": (
        r"(?s)(def receivers.*?)for b0 in range\((.*?), ",
        r"\1for b0 in range(1 + \2, ",
        r"\(.*\) from device \d to device \d is expected there, but not sent exactly once",
    ),
    "receivers_of_another": (
        r"(def receivers\(sender\):)",
        r"\1\n    sender = (sender + 1) % 6",
        r"\(.*\) from device \d to device \d is expected there, but not sent exactly once",
    ),
    "start_off_by_one": (
        r"read=\(low0 - from0\)",
        "read=(low0 - from0 + 1)",
        r"device 0: wrong target shard, moved by the kernel",
    ),
    "tile_left_out": (
        r"Tiles\(number=4",
        "Tiles(number=3",
        r"device \d: wrong target shard, moved by the kernel",
    ),
    "same_columns_everywhere": (
        r"(?s)(def target_box.*?lo1 = )[^\n]*",
        r"\g<1>0",
        "target shards do not tile the tensor",
    ),
    "rows_held_twice": (
        r"(?s)(def source_box.*?lo0 = )[^\n]*",
        r"\g<1>position // 5 * 4",
        "source shards have different numbers of replicas",
    ),
}
"""By name: words of a module, what stands there instead, and what the self-check says."""


LARGE = {
    "right": ("", "", "3"),  # the status of a check that ran nothing
    "receivers_of_another": (
        r"(def receivers\(sender\):)",
        r"\1\n    return [sender]",
        r"\(.*\) from device \d to device \d is expected there, but not sent exactly once",
    ),
}
"""As FAULTS, for a tensor that is too large to move."""


LEAST = {
    "right": ("", "", rf"{PROVED}; 24 {MOVED}"),
    "nothing_but_zeros": (
        r"tl.store\(out \+ write, total",
        "tl.store(out + write, (total & 0)",
        r"device 0: wrong target shard, moved by the kernel",
    ),
    "nothing_but_ones": (
        r"tl.store\(out \+ write, total",
        "tl.store(out + write, (total | 1)",
        r"device \d: wrong target shard, moved by the kernel",
    ),
    "a_term_left_out": (
        r"tl.static_range\(2\)",
        "tl.static_range(1)",
        r"device 0: wrong target shard, moved by the kernel",
    ),
}
"""As FAULTS, for terms that are reduced."""


def reduced(dtype: str, operator: str) -> Reshard:
    """Terms of which every element is the least, or the largest."""
    mesh = Mesh({"x": 2, "y": 2})
    terms = mesh.sharding(f'[{{"x"}}, {{}}], unreduced={operator}{{"y"}}')
    return Reshard((4, 6), dtype, terms, mesh.sharding('[{"x"}, {"y"}]'))


def uneven() -> Reshard:
    """A reshard whose tiles differ in size: 7x6 on 2x3."""
    mesh = Mesh({"x": 2, "y": 3})
    return Reshard(
        (7, 6), "int32", mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    )


def large() -> Reshard:
    """A reshard from rows to columns."""
    mesh = Mesh({"x": 8})
    return Reshard(
        (2048, 1024), "bfloat16", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    )


@pytest.mark.parametrize(
    ("reshard", "faults"),
    [
        (uneven(), FAULTS),
        (large(), LARGE),
        (reduced("int32", "min"), LEAST),
        (reduced("bool", "max"), LEAST),
    ],
    ids=["uneven", "large", "min", "bool max"],
)
def test_planted_faults(
    reshard: Reshard, faults: dict[str, tuple[str, str, str]], tmp_path: Path
) -> None:
    bundle = emit(reshard, ("triton_gpu",), features=EVERY)
    for name, (words, instead, _) in faults.items():
        bundle.write(tmp_path / "bundles" / name)
        path = tmp_path / "bundles" / name / "triton_gpu.py"
        text = path.read_text()
        edited = re.sub(words, instead, text, count=1) if words else text
        assert (edited == text) == (not words), f"{name}: the module has none of the words"
        path.write_text(edited)
    lines = printed(CHECK, list(faults), tmp_path).splitlines()
    said = dict(line.split(": ", 1) for line in lines)
    wrong = {name: said[name] for name in faults if not re.fullmatch(faults[name][2], said[name])}
    assert wrong == {}


@pytest.mark.parametrize(
    "targets",
    [
        ('[{"y"}, {"x"}]', '[{"y"}, {"z"}]'),
        ('[{"y"}, {"x"}]', '[{"z"}, {"x"}]'),
        ('[{}, {"x"}]', '[{}, {"x", "y"}]'),
    ],
)
def test_another_target_changes_few_lines(targets: tuple[str, str]) -> None:
    """What a reviewer reads anew when one sharding is edited, of modules of about 150 lines."""
    mesh = Mesh({"x": 2, "y": 2, "z": 2})
    source, shape = mesh.sharding('[{"x"}, {"y"}]'), (512, 768)
    before, after = (
        emit(
            Reshard(shape, "float32", source, mesh.sharding(target)),
            ("triton_gpu",),
            features=EVERY,
        )
        .files("weights")["triton_gpu.py"]
        .splitlines()
        for target in targets
    )
    changed = [
        line for line in difflib.unified_diff(before, after) if re.match(r"[+-](?![+-])", line)
    ]
    assert 10 < len(changed) < 120
