"""Conversions from and to jax's NamedSharding, and from torch's DeviceMesh and placements."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys

import pytest
from places import TESTS
from strategies import exactly, message

from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.spec import interop as convert
from shardwright.ir import Mesh, Reshard
from shardwright.ir.torch_placements import from_torch

IN_ORDER = '<["x"=4, "y"=2]>'
PERMUTED = '<["x"=4, "y"=2], device_ids=[7, 5, 3, 1, 6, 4, 2, 0]>'

JAX = """
import json, sys
import jax, numpy as np
from hypothesis import given, settings, strategies as st
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from shardwright.codegen.spec.interop import to_named_sharding
from shardwright.ir import InputError, Mesh, Sharding
from shardwright.ir.jax_specs import from_named_sharding
from shardwright.ir.placement import places_equally
from strategies import fields, held_by

answers = {}

def case(function):
    answers[function.__name__] = function()

GRID = np.array(jax.devices()).reshape(4, 2)
XY = jax.sharding.Mesh(GRID, ("x", "y"))

@case
def from_():
    specs = {
        "split": P("x", ("y",)), "short": P(("y", "x")), "open": P(P.UNCONSTRAINED, "y"),
    }
    return {n: str(from_named_sharding(NamedSharding(XY, spec), 2)) for n, spec in specs.items()}

@case
def shardys_own_text():
    spec = P(("x", "y"), P.UNCONSTRAINED)
    return str(NamedSharding(XY, spec)._to_sdy_sharding(3)).replace("'", '"')

@case
def our_text():
    return str(from_named_sharding(NamedSharding(XY, P(("x", "y"), P.UNCONSTRAINED)), 3))

@case
def permuted_ids():
    mesh = jax.sharding.Mesh(GRID[::-1], ("x", "y"))
    return str(from_named_sharding(NamedSharding(mesh, P("x")), 1).mesh)

@case
def abstract():
    return str(from_named_sharding(NamedSharding(AbstractMesh((4, 2), ("x", "y")), P("y")), 1).mesh)

@case
def refined():
    named = to_named_sharding(Mesh({"x": 4, "y": 2}).sharding('[{"x":(2)2, "y"}, {"x":(1)2}]'))
    return [str(dict(named.mesh.shape)), str(named.spec)]

@case
def unreduced():
    sharding = Mesh({"x": 4, "y": 2}).sharding('[{"x"}], unreduced={"y"}')
    named = to_named_sharding(sharding)
    kinds = [kind.name for kind in named.mesh.axis_types]
    return [str(named.spec), kinds, from_named_sharding(named, 1) == sharding]

@case
def maximal():
    return [d.id for d in to_named_sharding(Mesh({}, [3]).sharding("[{}]")).device_set]

@case
def given_devices():
    named = to_named_sharding(Mesh({"x": 2}).sharding('[{"x"}]'), jax.devices()[:2])
    return [d.id for d in named.mesh.devices.flat]

@case
def errors():
    mistakes = {
        "long": lambda: from_named_sharding(NamedSharding(XY, P("x", "y")), 1),
        "devices": lambda: to_named_sharding(Mesh({"x": 16}).sharding('[{"x"}]')),
    }
    found = {}
    for name, mistake in mistakes.items():
        try:
            mistake()
        except InputError as error:
            found[name] = str(error)
    return found

def jax_holds(sharding, shape):
    named = to_named_sharding(sharding)
    held = {}
    for device, index in named.devices_indices_map(shape).items():
        held[device.id] = [s.indices(n)[:2] for s, n in zip(index, shape)]
    return held

@case
def random_shardings():
    checked = []

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.data())
    def check(data):
        views = [{"x": 8}, {"x": 2, "y": 4}, {"x": 4, "one": 1, "z": 2}, {"a": 6}]
        axes = data.draw(st.sampled_from(views))
        size = int(np.prod(list(axes.values())))
        mesh = Mesh(axes, data.draw(st.permutations(range(size))))
        dims, replicated, _ = data.draw(fields(mesh, 2))
        sharding = Sharding(mesh, dims, replicated)
        shape = (48, 96)
        assert jax_holds(sharding, shape) == held_by(sharding, shape)
        back = from_named_sharding(to_named_sharding(sharding), 2)
        assert places_equally(sharding, back)
        checked.append(1)

    check()
    return len(checked)

print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def jax_says() -> dict[str, object]:
    """What jax answers, from one process with eight host devices."""
    pytest.importorskip("jax")
    here = str(TESTS)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(
        [sys.executable, "-c", JAX],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_from_a_named_sharding(jax_says: dict[str, object]) -> None:
    assert jax_says["from_"] == {
        "split": '[{"x"}, {"y"}]',
        "short": '[{"y", "x"}, {}]',
        "open": '[{?}, {"y"}]',
    }


def test_jax_itself_gives_shardy_the_same_dimensions(jax_says: dict[str, object]) -> None:
    assert jax_says["our_text"] == '[{"x", "y"}, {?}, {}]'
    assert jax_says["shardys_own_text"] == f"SdyArray({jax_says['our_text']})"


def test_device_ids_come_from_the_devices(jax_says: dict[str, object]) -> None:
    assert jax_says["permuted_ids"] == '<["x"=4, "y"=2], device_ids=[6, 7, 4, 5, 2, 3, 0, 1]>'
    assert jax_says["abstract"] == IN_ORDER
    assert jax_says["given_devices"] == [0, 1]
    assert jax_says["maximal"] == [3]


def test_sub_axes_refine_the_mesh(jax_says: dict[str, object]) -> None:
    assert jax_says["refined"] == [
        "{'x:(1)2': 2, 'x:(2)2': 2, 'y': 2}",
        "P(('x:(2)2', 'y'), 'x:(1)2')",
    ]


def test_unreduced_axes(jax_says: dict[str, object]) -> None:
    assert jax_says["unreduced"] == [
        "P('x', unreduced={'y'})",
        ["Auto", "Explicit"],
        True,
    ]


def test_jax_places_shards_where_the_definition_says(jax_says: dict[str, object]) -> None:
    assert isinstance(jax_says["random_shardings"], int)
    assert jax_says["random_shardings"] >= 60


def test_mistakes_with_jax(jax_says: dict[str, object]) -> None:
    assert jax_says["errors"] == {
        "long": exactly(
            """
            a PartitionSpec must not be longer than the rank of the tensor
            got: P('x', 'y') for rank 1
            expected: a length of at most 1
            """
        ),
        "devices": exactly(
            """
            devices: every device id of the mesh must be the id of a JAX device
            got: no device with id 8 among 8 devices
            expected: ids 0, 1, 2, 3, 4, 5, 6, 7
            """
        ),
    }


@pytest.fixture(scope="module")
def tensor() -> object:
    """torch's module of DTensors and placements."""
    pytest.importorskip("torch")
    import torch.distributed.tensor as tensor

    return tensor


def device_mesh(ranks: list[object], names: tuple[str, ...] | None = ("a", "b")) -> object:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh(
        "cpu", torch.tensor(ranks), mesh_dim_names=names, _init_backend=False, _rank=0
    )


def test_from_torch(tensor) -> None:
    mesh = device_mesh([[0, 1], [2, 3]])
    shard, whole, partial = tensor.Shard, tensor.Replicate(), tensor.Partial()
    cases = [
        ([shard(0), shard(1)], '[{"a"}, {"b"}]'),
        ([shard(1), shard(1)], '[{}, {"a", "b"}]'),
        ([shard(-1), whole], '[{}, {"a"}]'),
        ([shard(-2), whole], '[{"a"}, {}]'),
        ([whole, whole], "[{}, {}]"),
        ([partial, shard(0)], '[{"b"}, {}], unreduced={"a"}'),
        ([partial, partial], '[{}, {}], unreduced={"a", "b"}'),
        ([tensor.Partial("max"), shard(0)], '[{"b"}, {}], unreduced=max{"a"}'),
        ([tensor.Partial("min")] * 2, '[{}, {}], unreduced=min{"a", "b"}'),
    ]
    for placements, text in cases:
        sharding = from_torch(mesh, placements, 2)
        assert str(sharding) == text
        assert sharding.mesh == Mesh({"a": 2, "b": 2})


def test_ranks_and_names_of_a_device_mesh(tensor) -> None:
    whole = tensor.Replicate()
    sharding = from_torch(device_mesh([[3, 1], [0, 2]], None), [whole, whole], 1)
    assert str(sharding.mesh) == '<["dim_0"=2, "dim_1"=2], device_ids=[3, 1, 0, 2]>'


def test_uneven_shards_of_torch_are_the_nested_split(tensor) -> None:
    """(5, 3) over 2x2: rows 2, 1, 1, 1 and not the flat split's 2, 2, 1, 0."""
    import torch

    placements = [tensor.Shard(0), tensor.Shard(0)]
    sharding = from_torch(device_mesh([[0, 1], [2, 3]]), placements, 2)
    reshard = Reshard((5, 3), "float32", sharding, sharding, "nested", "nested")
    assert sharding.local_shape(reshard.shape) == (2, 3)
    halves = torch.chunk(torch.arange(5), 2)
    assert [len(part) for half in halves for part in torch.chunk(half, 2)] == [2, 1, 1, 1]


STRIDED = (
    # sizes of the mesh, split factors of the placements (1 for Shard), the axes, major to minor,
    # and whether a factor is always that of one axis, so that extents need not divide
    ((2, 2), (2, 1), '"b", "a"', True),
    ((2, 3), (3, 1), '"b", "a"', True),
    ((2, 4), (2, 1), '"b":(1)2, "a", "b":(2)2', False),
    ((2, 2, 2), (4, 1, 1), '"b", "c", "a"', False),
    ((2, 2, 2), (2, 2, 1), '"c", "a", "b"', True),
    ((2, 2, 3), (1, 3, 1), '"a", "c", "b"', True),
    ((2, 3, 2), (6, 2, 1), '"c", "b", "a"', False),
)


@pytest.mark.parametrize(("sizes", "factors", "axes", "any_extent"), STRIDED)
def test_strided_shards_are_axes_in_another_order(
    tensor, sizes: tuple[int, ...], factors: tuple[int, ...], axes: str, any_extent: bool
) -> None:
    """What torch's own placements leave on every device, of extents that divide and that do not."""
    import torch
    from torch.distributed.tensor.placement_types import _StridedShard

    ranks = torch.arange(math.prod(sizes)).reshape(sizes)
    mesh = device_mesh(ranks.tolist(), tuple("abc"[: len(sizes)]))
    placements = [
        tensor.Shard(0) if factor == 1 else _StridedShard(0, split_factor=factor)
        for factor in factors
    ]
    sharding = from_torch(mesh, placements, 1)
    assert str(sharding) == f"[{{{axes}}}]"
    for extent in (5, 7, 24, 31) if any_extent else (24, 48):
        held = oracle.holdings(placement(sharding, "nested"), (extent,))
        for place in itertools.product(*map(range, sizes)):
            part = torch.arange(extent)
            for each, count, own in zip(placements, sizes, place, strict=True):
                parts, _ = each._split_tensor(part, count, with_padding=False, contiguous=True)
                part = parts[own]
            assert part.tolist() == list(held[int(ranks[place])][0]), (extent, place)


def test_mistakes_with_torch(tensor) -> None:
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh, whole = device_mesh([[0, 1], [2, 3]]), tensor.Replicate()
    cases = [
        (
            [_StridedShard(0, split_factor=3), tensor.Shard(0)],
            """
            placements: the split factor must fit the placements for later mesh dimensions
            got: _StridedShard(dim=0, sf=3) along a; the later placements make 2 shards
            expected: the product of the sizes of the first axes, or sub-axes, that they split by
            """,
        ),
        (
            [_StridedShard(0, split_factor=2), tensor.Shard(1)],
            """
            placements: the split factor must fit the placements for later mesh dimensions
            got: _StridedShard(dim=0, sf=2) along a; the later placements make 1 shard
            expected: the product of the sizes of the first axes, or sub-axes, that they split by
            """,
        ),
        (
            [whole, tensor.Partial("avg")],
            """
            placements: this placement is not supported
            got: Partial(avg)
            expected: Shard(dim), Replicate() or Partial of sum, max or min
            """,
        ),
        (
            [tensor.Partial("max"), tensor.Partial()],
            """
            placements: all unreduced axes of a sharding must have the same operator
            got: max along a and sum along b
            expected: Partial of one operator
            """,
        ),
        (
            [tensor.Shard(2), whole],
            """
            placements: a placement must shard a dimension of the tensor
            got: Shard(dim=2)
            expected: a dimension of a tensor of rank 2
            """,
        ),
        (
            [whole],
            """
            placements: there must be one placement for each dimension of the device mesh
            got: 1 placements
            expected: 2
            """,
        ),
    ]
    for placements, expected in cases:
        assert message(lambda p=placements: from_torch(mesh, p, 2)) == exactly(expected)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    assert message(lambda: convert.to_named_sharding(Mesh({"x": 1}).sharding("[]"))) == exactly(
        """
        this conversion needs jax, which is not installed
        got: no module named jax
        expected: pip install -e '.[jax]' in the checkout of shardwright
        """
    )


def test_the_empty_mesh_is_none_of_jax() -> None:
    pytest.importorskip("jax")
    assert message(lambda: convert.to_named_sharding(Mesh({}).sharding("[]"))) == exactly(
        """
        the sharding must be on a mesh with devices; the empty mesh has none
        got: <[]>
        expected: a sharding that is replicated on a mesh of devices
        """
    )


def test_neither_jax_nor_torch_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, shardwright.ir, shardwright.codegen.spec.interop\n"
        "print([m for m in ('jax', 'torch', 'triton', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
