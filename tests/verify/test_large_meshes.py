"""Modules of meshes that are too large to run: proved at full size, run on a smaller mesh."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ok

from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.verify.single import emitted_now, twins_of
from shardwright.codegen.operations.verify.smaller_mesh import smaller_meshes
from shardwright.codegen.operations.verify.twin import form
from shardwright.codegen.spec.description import Description
from shardwright.ir import Mesh, Reshard

PROOF = "is written exactly once, from the source element of its index"
ONE = Mesh({"x": 16, "y": 8})


def smaller(reshard: Reshard) -> list[Reshard]:
    return [small for (small,) in smaller_meshes([reshard], 64)]


def test_sub_axes_shrink_one_by_one() -> None:
    source, target = ONE.sharding('[{"x":(1)4, "y"}, {}]'), ONE.sharding('[{}, {"x":(4)4}]')
    first = smaller(Reshard((64, 64), "int8", source, target))[0]
    assert (first.source.mesh.axes, first.shape) == ((("x", 4), ("y", 2)), (8, 32))
    assert str(first.source) == '[{"x":(1)2, "y"}, {}]'
    assert str(first.target) == '[{}, {"x":(2)2}]'


def test_the_same_devices_stay_in_another_order() -> None:
    """Of a mesh that lists the devices of the other backwards."""
    other = Mesh({"a": 32, "b": 4}, range(127, -1, -1))
    reshard = Reshard(
        (128, 128), "int8", ONE.sharding('[{"x"}, {}]'), other.sharding('[{}, {"a"}]')
    )
    for small in smaller(reshard):
        ids = small.source.mesh.device_ids, small.target.mesh.device_ids
        assert list(ids[1]) == list(reversed(ids[0]))


def test_meshes_that_share_no_device_share_none() -> None:
    other = Mesh({"t": 4}, range(128, 132))
    reshard = Reshard(
        (128, 128), "int8", ONE.sharding('[{"x"}, {}]'), other.sharding('[{}, {"t"}]')
    )
    for small in smaller(reshard):
        count = small.source.mesh.size
        assert small.source.mesh.device_ids == range(count)
        assert small.target.mesh.device_ids == range(count, count + small.target.mesh.size)


@pytest.mark.parametrize("extent", [128, 1000, 130, 100, 16])
def test_extents_stay_cut_in_the_same_way(extent: int) -> None:
    """Evenly, with a short last shard, with empty ones, with single elements."""
    source, target = ONE.sharding('[{"x", "y"}]'), ONE.sharding('[{"x"}]')
    large = Reshard((extent,), "int8", source, target)
    smalls = smaller(large)

    def widths(of: Reshard) -> tuple[bool, bool, bool]:
        parts, size = of.source.parts(0), of.source.local_shape(of.shape)[0]
        held = [max(0, min(size, of.shape[0] - at * size)) for at in range(parts)]
        return len(set(held)) == 1, 0 in held, size == 1

    assert widths(smalls[0]) == widths(large)


@pytest.mark.parametrize("backend", ["triton_gpu", "jax_xla", "pallas_tpu"])
def test_modules_have_the_same_form(backend: str) -> None:
    server = Mesh({"tp": 8}, range(128, 136))
    pairs = [
        ('[{"y"}, {"x"}]', server.sharding('[{"tp"}, {}]')),
        ('[{"x"}, {"y"}]', server.sharding('[{}, {"tp"}]')),
        ('[{"x"}, {}]', ONE.sharding('[{}, {"x"}]')),
    ]
    for source, target in pairs:
        reshard = Reshard((512, 512), "bfloat16", ONE.sharding(source), target)
        description = Description.of(reshard, "large", (backend,))
        emitted = emitted_now(description, backend)
        found = twins_of([description], backend, [emitted])
        assert found is not None
        ((small, modules),) = found
        assert small.source.mesh.size <= 64
        assert [form(part.text) for part in modules] == [form(part.text) for part in emitted]


@pytest.mark.slow
def test_a_mesh_of_eleven_times_six(tmp_path: Path) -> None:
    """Neither factor is a power of two."""
    pytest.importorskip("triton")
    mesh = Mesh({"x": 66})
    reshard = Reshard((132, 66), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]'))
    emit(reshard, ("triton_gpu",)).write(tmp_path / "wide")
    (report,) = verify(tmp_path)
    assert (report.verdict, report.devices) == ("ok", 66)
    assert report.detail == (
        "twin 22x11 on 11 devices; at full size: constants, index functions, transfers, copies, "
        f"order of copies, text; every element of every target shard (66 devices) {PROOF}"
    )


CONFIG = """\
[mesh]
trainer = "fsdp=16,tp=8"
server = '<["tp"=4], device_ids=[128, 129, 130, 131]>'

[[group]]
name = "weights"
mesh = "trainer"
target_mesh = "server"
dtype = "bfloat16"
backends = ["triton_gpu"]
tensors = [
  {name = "wq", shape = [8192, 8192], source = '[{"tp"}, {"fsdp"}]', target = '[{"tp"}, {}]'},
  {name = "wk", shape = [8192, 8192], source = '[{"tp"}, {"fsdp"}]', target = '[{"tp"}, {}]'},
  {name = "wo", shape = [8192, 8192], source = '[{"fsdp"}, {"tp"}]', target = '[{}, {"tp"}]'},
]
"""


@pytest.mark.slow
def test_a_group(tmp_path: Path) -> None:
    """Right, then with a sender that is wrong for the last receiver alone."""
    pytest.importorskip("triton")
    (tmp_path / "shardwright.toml").write_text(CONFIG)
    ok("emit", tmp_path / "shardwright.toml")
    root = tmp_path / "generated"
    (report,) = verify([root / "weights"])[-1:]
    assert (report.verdict, report.devices) == ("ok", 132)
    assert report.detail == (
        "twins of its tensors on 10 devices; at full size: text; every element of every target "
        f"shard (3 tensors, 132 devices) {PROOF}"
    )
    module = root / "wo" / "triton_gpu.py"
    text = module.read_text()
    planted = text.replace(
        "def senders(receiver):", "def senders(receiver):\n    receiver -= receiver == 3"
    )
    assert planted != text
    module.write_text(planted)
    (report,) = verify([root / "weights"])[-1:]
    assert report.verdict == "failed"
    assert report.detail.startswith("wo: device 131: the boxes that it receives have ")
