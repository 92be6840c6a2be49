"""Plans of reshards that others have named: the seeds' decompositions, what Shardy refuses, what
XLA gathers whole, from trainer to inference. Each is carried out step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulate import check
from strategies import exactly, message

from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard


@pytest.mark.parametrize("shape", [(4, 4, 4), (1024, 1024, 1024)])
@pytest.mark.parametrize("topology", ["switch", "torus:4x4", "v5e:4x4", "hierarchical:4x4"])
def test_four_axes_of_the_seed(shape: tuple[int, ...], topology: str) -> None:
    """`[[3, 2], [], [0, 1]] -> [[0], [1, 2], []]`: the seed takes four steps."""
    mesh = Mesh({"x": 2, "y": 2, "z": 2, "w": 2})
    source = mesh.sharding('[{"w", "z"}, {}, {"x", "y"}]')
    target = mesh.sharding('[{"x"}, {"y", "z"}, {}]')
    made = plan(Reshard(shape, "float32", source, target), "basis", topology=topology)
    assert len(made.steps) <= 4
    if shape == (4, 4, 4):
        check(made)


@pytest.mark.parametrize("axes", [{"x": 2, "y": 3}, {"x": 2, "y": 6}, {"x": 4, "y": 4}])
@pytest.mark.parametrize("topology", ["switch", "hierarchical:4x6"])
def test_a_transposed_grid_of_the_seed(axes: dict[str, int], topology: str) -> None:
    """`[[0], [1]] -> [[1], [0]]`: the seed takes three steps."""
    mesh = Mesh(axes)
    source, target = mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    made = plan(Reshard((24, 48), "float32", source, target), "basis", topology=topology)
    assert len(made.steps) <= 3
    check(made)


def test_other_examples_of_the_seed() -> None:
    """What the second seed calls its basis, and its last example."""
    mesh = Mesh({"x": 2, "y": 2, "z": 2})
    for source, target, ops in (
        ("[{}]", '[{"y"}]', "slice"),
        ('[{"x"}]', "[{}]", "all_gather"),
        ('[{"x", "y"}]', '[{"y", "x"}]', "permute"),
        ('[{"x", "y"}]', '[{"x"}]', "all_gather"),
        ('[{"x", "y"}]', '[{"y"}]', "permute, all_gather"),
    ):
        made = plan(Reshard((8,), "int32", mesh.sharding(source), mesh.sharding(target)), "basis")
        assert made.ops == ops
        check(made)
    moved = Reshard(
        (4, 4), "int8", mesh.sharding('[{"x"}, {"y", "z"}]'), mesh.sharding('[{"x", "y"}, {"z"}]')
    )
    assert plan(moved, "basis").ops == "permute, all_to_all"


def test_sub_axes_that_cannot_coexist() -> None:
    """Shardy refuses `"x":(1)2 -> "x":(1)3`; by way of the whole axis it is two steps."""
    mesh = Mesh({"x": 6})
    source, target = mesh.sharding('[{"x":(1)2}]'), mesh.sharding('[{"x":(1)3}]')
    made = plan(Reshard((12,), "int32", source, target), "basis")
    assert made.ops == "slice, all_gather"
    assert str(made.steps[0].ends.after) == '[{"x"}]'  # type: ignore[union-attr]
    check(made)
    for extent in (12, 11, 5):
        check(plan(Reshard((extent,), "int32", source, target), "direct", topology="switch"))
        check(plan(Reshard((extent,), "int32", source, target), "basis"))


def test_xla_15207() -> None:
    """28,672 elements in XLA where 3,584 suffice: the bound is reached by an exchange, and a basis
    plan moves no more than a quarter above what its steps must."""
    mesh = Mesh({"x": 4, "y": 2})
    source, target = mesh.sharding('[{"x"}, {"y"}, {}]'), mesh.sharding('[{}, {"x"}, {"y"}]')
    reshard = Reshard((16, 16, 16), "float32", source, target)
    direct = plan(reshard, "direct", topology="v5e:2x4")
    assert direct.traffic.received_total == 4 * 3584
    check(direct)
    made = plan(reshard, "basis")
    assert made.traffic.received_total < 4 * 28672 / 3
    check(made)


def test_trainer_to_inference_is_direct() -> None:
    """Disjoint devices, 8 to 4 and 6 to 4: the basis says what works, `auto` does it."""
    for count in (8, 6):
        trainer = Mesh({"data": 2, "model": count // 2})
        server = Mesh({"tp": 4}, range(8, 12))
        source = trainer.sharding('[{"data", "model"}, {}]')
        reshard = Reshard((24, 16), "bfloat16", source, server.sharding('[{}, {"tp"}]'))
        assert message(lambda r=reshard: plan(r, "basis")) == exactly(
            f"""
            strategy: the basis strategy needs the same devices before and after
            got: basis, for meshes of {count} and 4 devices that share 0
            expected: direct, which works between any two meshes
            """
        )
        made = plan(reshard, topology="hierarchical:2x8")
        assert made.strategy == "direct"
        assert made.traffic.received_total == made.target_bytes
        check(made)
        check(plan(replace(reshard, shape=(25, 13)), topology="hierarchical:2x8"))


def test_disjoint_devices_hold_one_shard_each() -> None:
    """54 bytes before or 60 after, never both."""
    source = Mesh({"data": 2, "model": 2}).sharding('[{"data", "model"}, {}]')
    target = Mesh({"tp": 3}, range(4, 7)).sharding('[{}, {"tp"}]')
    reshard = Reshard((10, 9), "bfloat16", source, target)
    made = plan(reshard, topology="h100:1x8", memory_limit=60)
    assert made.prediction is not None
    assert made.prediction.peak_bytes == 60
    check(made)
    assert message(lambda: plan(reshard, memory_limit=59)) == exactly(
        """
        memory_limit: a device cannot hold its source or its target shard
        got: 59 bytes
        expected: at least 60: 54 before and 60 after
        """
    )
