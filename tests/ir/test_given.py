"""What people have for meshes and shardings: read as jax and torch themselves place shards."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import TESTS
from strategies import exactly, message

from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.ir import InputError, Mesh, Reshard

MESH = Mesh({"x": 2, "y": 3})

JAX = """
import json, re
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from hypothesis import given, settings, strategies as st
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from shardwright.ir import DTYPES, InputError, Mesh, Reshard
from shardwright.ir.dtypes import dtype_of
from shardwright.ir.placement import places_equally
from strategies import held_by

answers = {}
SHAPE = (48, 96)
VIEWS = [{"x": 8}, {"x": 2, "y": 4}, {"x": 4, "one": 1, "z": 2}, {"a": 2, "b": 2, "c": 2}]

@st.composite
def named(draw):
    axes = draw(st.sampled_from(VIEWS))
    devices = np.array(draw(st.permutations(jax.devices()))).reshape(list(axes.values()))
    places = [[], [], []]
    for name in draw(st.permutations(list(axes))):
        places[draw(st.integers(0, 2))].append(name)
    entries = [tuple(names) or None for names in places[:2]]
    while entries and entries[-1] is None and draw(st.booleans()):
        entries.pop()
    one = [e[0] if e and len(e) == 1 and draw(st.booleans()) else e for e in entries]
    return NamedSharding(jax.sharding.Mesh(devices, tuple(axes)), P(*one))

def held_by_jax(sharding):
    held = {}
    for device, index in sharding.devices_indices_map(SHAPE).items():
        held[device.id] = [s.indices(n)[:2] for s, n in zip(index, SHAPE)]
    return held

checked = []

@settings(max_examples=80, deadline=None, derandomize=True)
@given(named(), named())
def check(source, target):
    reshard = Reshard(SHAPE, jnp.bfloat16, source, target)
    assert reshard.dtype == "bfloat16"
    assert reshard.source_split == reshard.target_split == "flat"
    for ours, theirs in ((reshard.source, source), (reshard.target, target)):
        assert held_by(ours, SHAPE) == held_by_jax(theirs)
    meshes = {"mesh": source.mesh, "target_mesh": target.mesh}
    sdy = [str(each._to_sdy_sharding(2)) for each in (source, target)]
    sdy = [each.removeprefix("SdyArray(").removesuffix(")").replace("'", '"') for each in sdy]
    said = ((source.spec, target.spec), (str(source.spec), repr(target.spec)), sdy)
    assert all(Reshard(SHAPE, "bf16", *each, **meshes) == reshard for each in said)
    hlo = [str(s._to_xla_hlo_sharding(2)) for s in (source, target)]
    for text, ours in zip(hlo, (reshard.source, reshard.target)):
        mesh = Mesh(ours.mesh.axes)  # HLO counts positions in the mesh
        assert places_equally(mesh.sharding(text, 2), mesh.sharding(str(ours))), (text, ours)
    if source.mesh.axis_names == target.mesh.axis_names:
        alone = Reshard(SHAPE, "bf16", source, target.spec)
        assert alone.target.mesh == reshard.source.mesh
    checked.append(1)

check()
answers["checked"] = len(checked)

MESH = jax.sharding.Mesh(np.array(jax.devices()[::-1]).reshape(4, 2), ("x", "y"))
answers["abstract"] = [
    str(Reshard(SHAPE, "f32", NamedSharding(MESH.abstract_mesh, P("x")), P(), **given).source.mesh)
    for given in ({}, {"mesh": MESH})
]
alone = SingleDeviceSharding(jax.devices()[3])
answers["one device"] = str(Reshard(SHAPE, "f32", P("x"), alone, mesh=MESH).target.mesh)
specs = (P(P.UNCONSTRAINED, "y"), P("x", unreduced={"y"}), P("x", reduced={"y"}))
for name, read in (("specs", lambda spec: spec), ("texts", str)):
    answers[name] = [str(Mesh.of(MESH).sharding(read(spec))) for spec in specs]

def short(name):
    x = jax.ShapeDtypeStruct((8,), name)
    lowered = jax.jit(lambda x: x).lower(x)
    hlo = re.search(r"->(\\w+)\\[8\\]", lowered.as_text("hlo"))[1]
    mlir = re.search(r"tensor<8x(\\w+)>", lowered.as_text())[1]
    jaxpr = re.search(r"(\\w+)\\[8\\]", str(jax.make_jaxpr(lambda x: x)(x)))[1]
    return hlo, mlir, jaxpr

answers["dtypes"] = [name for name in DTYPES for each in short(name) if dtype_of(each) != name]

def said(call):
    try:
        return str(call())
    except InputError as error:
        return str(error)

from shardwright.ir import Sharding
answers["errors"] = {
    "an array": said(lambda: Reshard(SHAPE, "f32", jnp.zeros(3), P(), mesh=MESH)),
    "other": said(lambda: Reshard(SHAPE, "f32", NamedSharding(MESH, P("x")), P(), mesh={"x": 8})),
    "no mesh": said(lambda: Reshard(SHAPE, "f32", P("x"), P())),
    "long": said(lambda: Reshard(SHAPE, "f32", P("x", None, None), P(), mesh=MESH)),
    "axis": said(lambda: Reshard(SHAPE, "f32", P("xx"), P(), mesh=MESH)),
    "sharding of": said(lambda: Sharding(MESH, ())),
    "mesh given axes": said(lambda: Mesh(MESH)),
}
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def jax_says() -> dict[str, Any]:
    """What one process with eight host devices answers."""
    pytest.importorskip("jax")
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(
        [sys.executable, "-c", JAX],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_jax_has_is_where_jax_puts_it(jax_says: dict[str, Any]) -> None:
    """As NamedShardings, specs, their texts, Shardy's and HLO's, at random."""
    assert jax_says["checked"] >= 80


def test_meshes_of_jax(jax_says: dict[str, Any]) -> None:
    reverse = '<["x"=4, "y"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>'
    assert jax_says["abstract"] == ['<["x"=4, "y"=2]>', reverse]
    assert jax_says["one device"] == "<[], device_ids=[3]>"


def test_sets_of_a_spec(jax_says: dict[str, Any]) -> None:
    wanted = ['[{?}, {"y"}]', '[{"x"}], unreduced={"y"}', '[{"x"}]']
    assert jax_says["specs"] == jax_says["texts"] == wanted


def test_short_names_of_hlo_mlir_and_jaxprs(jax_says: dict[str, Any]) -> None:
    assert jax_says["dtypes"] == []


def test_mistakes_with_jax(jax_says: dict[str, Any]) -> None:
    kinds = "a Sharding, a NamedSharding, a PartitionSpec, placements or a text"
    assert jax_says["errors"] == {
        "an array": exactly(
            f"""
            source: a sharding must be {kinds}
            got: Array([0., 0., 0.], dtype=float64)
            expected: its sharding: x.sharding
            """
        ),
        "other": exactly(
            """
            source: the sharding must be on the given mesh
            got: <["x"=4, "y"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
            expected: <["x"=8]>
            """
        ),
        "no mesh": exactly(
            """
            source: a PartitionSpec needs a mesh
            got: P('x',)
            expected: mesh='x=2,y=3', a JAX mesh or a DeviceMesh
            """
        ),
        "long": exactly(
            """
            source: a PartitionSpec must not be longer than the rank of the tensor
            got: P('x', None, None) for rank 2
            expected: a length of at most 2
            """
        ),
        "axis": exactly(
            """
            source: an axis must exist in the mesh; did you mean x?
            got: "xx"
            expected: one of "x", "y"
            """
        ),
        "sharding of": exactly(
            """
            mesh: the value must be of type Mesh
            got: Mesh(axis_sizes=(4, 2), axis_names=('x', 'y'), axis_types=(Auto, Auto))
            expected: of a JAX mesh: sw.Mesh.of(mesh)
            """
        ),
        "mesh given axes": exactly(
            """
            axes: every axis of a mesh must have a name and a size
            got: Mesh(axis_sizes=(4, 2), axis_names=('x', 'y'), axis_types=(Auto, Auto))
            expected: of a JAX mesh: sw.Mesh.of(mesh)
            """
        ),
    }


@pytest.fixture(scope="module")
def tensor() -> Any:
    """torch's module of DTensors and placements."""
    pytest.importorskip("torch")
    import torch.distributed.tensor as tensor

    return tensor


def device_mesh(shape: tuple[int, ...], ranks: list[int], rank: int = 0) -> Any:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    names = tuple("abc"[: len(shape)])
    grid = torch.tensor(ranks).reshape(shape)
    return DeviceMesh("cpu", grid, mesh_dim_names=names, _init_backend=False, _rank=rank)


@st.composite
def placed(draw: st.DrawFn, sizes: tuple[int, ...], rank: int, strided: bool) -> list[Any]:
    """Placements on a mesh of a tensor of a rank."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    found: list[Any] = []
    for number in range(len(sizes)):
        dim = draw(st.integers(-1, rank - 1))
        factors = sorted({math.prod(sizes[number + 1 : end]) for end in range(9)} - {1})
        if dim < 0:
            found.append(Replicate())
        elif strided and factors and draw(st.booleans()):
            found.append(_StridedShard(dim, split_factor=draw(st.sampled_from(factors))))
        else:
            found.append(Shard(dim - rank * draw(st.integers(0, 1))))
    return found


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_placements_are_where_torch_puts_them(tensor: Any, data: st.DataObject) -> None:
    """By what torch says of every rank's shard, for extents that divide and that do not; as
    placements and as their texts."""
    import torch
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    sizes = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    rank = data.draw(st.integers(1, 3))
    shape = torch.Size(data.draw(st.lists(st.integers(1, 25), min_size=rank, max_size=rank)))
    in_order = range(math.prod(sizes))
    ranks = data.draw(st.permutations(in_order)) if data.draw(st.booleans()) else list(in_order)
    mesh = device_mesh(sizes, list(ranks))
    placements = data.draw(placed(sizes, rank, strided=False))
    split = [axis for axis, each in enumerate(placements) if each.is_shard()]
    if any((torch.diff(mesh.mesh, dim=axis) < 0).any() for axis in split):
        with pytest.raises(InputError, match="ranks must ascend"):
            Reshard(shape, torch.float16, placements, str(tuple(placements)), mesh=mesh)
        return
    # As DTensor makes them before it asks; without it, torch ignores the outer of two.
    normal = [tensor.Shard(p.dim % rank) if p.is_shard() else p for p in placements]
    reshard = Reshard(shape, torch.float16, placements, str(tuple(placements)), mesh=mesh)
    assert reshard.source == reshard.target
    assert reshard.source_split == reshard.target_split
    assert reshard == Reshard(shape, "f16", placements, repr(placements), mesh=mesh)
    held = oracle.holdings(placement(reshard.source, reshard.source_split), tuple(shape))
    for device in ranks:
        own = device_mesh(sizes, list(ranks), device)
        extents, offsets = compute_local_shape_and_global_offset(shape, own, normal)
        if 0 in extents:
            assert any(len(indices) == 0 for indices in held[device])
            continue
        wanted = [range(low, low + size) for low, size in zip(offsets, extents, strict=True)]
        assert [list(each) for each in held[device]] == [list(each) for each in wanted]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_strided_placements_are_exact_or_refused(tensor: Any, data: st.DataObject) -> None:
    """By torch's order of axes, chunk after chunk; where it has none, by what its placements leave
    of a dimension on every rank."""
    import torch

    sizes = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=3)))
    placements = data.draw(placed(sizes, 1, strided=True))
    extent = data.draw(st.integers(1, 40))
    mesh = device_mesh(sizes, list(range(math.prod(sizes))))
    reshard = None
    with contextlib.suppress(InputError):
        reshard = Reshard((extent,), "f32", placements, repr(placements), mesh=mesh)
    if reshard is None:  # for a factor of no shards, or an extent that does not divide
        assert any(type(each) is not tensor.Shard for each in placements)
        return
    held = oracle.holdings(placement(reshard.source, reshard.source_split), (extent,))
    spec = tensor._dtensor_spec.DTensorSpec
    plain = tensor.Shard(0)
    normal = tuple(plain if type(each) is tensor.Shard else each for each in placements)
    entries = spec._maybe_convert_StridedShard_to_shard_order(normal, mesh)
    axes = range(len(sizes)) if entries is None else [a for each in entries for a in each.mesh_dims]
    for device, place in enumerate(itertools.product(*map(range, sizes))):
        part = torch.arange(extent)
        for axis in axes:
            each = normal[axis]
            if not each.is_replicate():
                each = each if entries is None else plain
                parts, _ = each._split_tensor(
                    part, sizes[axis], with_padding=False, contiguous=True
                )
                part = parts[place[axis]]
        assert part.tolist() == list(held[device][0])


def test_the_split_of_placements_is_nested_where_it_differs() -> None:
    both, one = "[Shard(0), Shard(0)]", "[Replicate(), Shard(0)]"
    for placements, extent, split in ((both, 12, "flat"), (both, 13, "nested"), (one, 13, "flat")):
        reshard = Reshard((extent,), "f32", placements, "P('x')", mesh=MESH)
        assert (reshard.source_split, reshard.target_split) == (split, "flat")
    assert Reshard((12,), "f32", both, "P()", "nested", mesh=MESH).source_split == "nested"


def test_terms_of_placements() -> None:
    for text, operator in (("Partial()", ""), ("Partial(sum)", ""), ("Partial('max')", "max")):
        reshard = Reshard((12,), "f32", f"[{text}, Shard(dim=0)]", "P()", mesh=MESH)
        assert str(reshard.source) == f'[{{"y"}}], unreduced={operator}{{"x"}}'


def test_meshes() -> None:
    for given_mesh in ("x=2,y=3", {"x": 2, "y": 3}, '<["x"=2, "y"=3]>', MESH):
        assert Mesh.of(given_mesh) == MESH
    source, target = "P('x', 'y')", '[{"y"}, {"x"}]'
    reshard = Reshard("6x6", "f32", source, target, mesh="x=2,y=3")
    assert reshard.source == MESH.sharding('[{"x"}, {"y"}]')
    assert reshard.target == MESH.sharding(target)
    assert reshard.shape == (6, 6)
    other = Reshard((6, 6), "f32", reshard.source, "P('z')", target_mesh={"z": 3})
    assert (other.source.mesh, other.target.mesh) == (MESH, Mesh({"z": 3}))
    inline = Reshard((6, 6), "f32", '<mesh<["a"=2]>, [{"a"}, {}]>', "P(None, 'a')")
    assert inline.target.mesh == Mesh({"a": 2})


MISTAKES = {
    "a spec's text": (
        {"source": "P('x' 'y')"},
        """
        source: the text is not a PartitionSpec
          P('x' 'y')
                ^^^
        got: 'y'
        expected: ')' or ','
        """,
    ),
    "an axis twice": (
        {"source": "P('x', ('y', 'x'))"},
        """
        source: an axis or sub-axis may be used only once
          P('x', ('y', 'x'))
                       ^^^
        got: "x" in dimension 0 and in dimension 1
        expected: "x" in one place only
        """,
    ),
    "a set twice": (
        {"source": "P(unreduced={'x'}, unreduced={'y'})"},
        """
        source: unreduced may be given only once
          P(unreduced={'x'}, unreduced={'y'})
                             ^^^^^^^^^
        got: unreduced twice
        """,
    ),
    "too many entries": (
        {"target": "P(None, None, 'x')"},
        """
        target: a PartitionSpec must not be longer than the rank of the tensor
          P(None, None, 'x')
          ^^^^^^^^^^^^^^^^^^
        got: P(None, None, 'x') for rank 2
        expected: a length of at most 2
        """,
    ),
    "too few placements": (
        {"source": "[Shard(0)]"},
        """
        source: there must be one placement for each dimension of the device mesh
          [Shard(0)]
          ^^^^^^^^^^
        got: 1 placements
        expected: 2
        """,
    ),
    "an operator": (
        {"source": "[Shard(0), Partial(avg)]"},
        """
        source: unknown operator of a partial value
          [Shard(0), Partial(avg)]
                             ^^^
        got: avg
        expected: one of sum, max, min
        """,
    ),
    "a placement's text": (
        {"source": "[Shard(0), Replicate]"},
        """
        source: the text is not a sequence of placements
          [Shard(0), Replicate]
                              ^
        got: ]
        expected: '('
        """,
    ),
    "a misspelt placement": (
        {"source": "Shard(0), Replicat()"},
        """
        source: the text is not a sequence of placements; did you mean Replicate?
          Shard(0), Replicat()
                    ^^^^^^^^
        got: Replicat
        expected: 'Partial', 'Replicate', 'Shard' or '_StridedShard'
        """,
    ),
    "a misspelt first placement": (
        {"source": "Shart(0), Replicate()"},
        """
        source: the text is not a sharding; did you mean Shard?
          Shart(0), Replicate()
          ^^^^^
        got: Shart
        expected: [{"x"}, {}], P('x', None), (Shard(0), Replicate()) or {devices=[2,1]<=[2]}
        """,
    ),
    "flat for nested": (
        {"shape": (7, 6), "source": "[Shard(0), Shard(0)]", "source_split": "flat"},
        """
        source_split: split 'flat' contradicts these placements: torch splits by one mesh axis \
after another, which gives different shards here
        got: flat
        expected: nested, or a Sharding in place of placements: sw.from_torch(…)
        """,
    ),
    "a tuple": (
        {"source": ("x", None)},
        """
        source: a sharding must be a Sharding, a NamedSharding, a PartitionSpec, placements or a \
text
        got: ('x', None)
        expected: P('x', None)
        """,
    ),
    "nothing": (
        {"target": None},
        """
        target: a sharding must be a Sharding, a NamedSharding, a PartitionSpec, placements or a \
text
        got: None
        expected: a text such as '[{"x"}, {}]', P('x', None), a NamedSharding or placements
        """,
    ),
    "no mesh for HLO's": (
        {"source": "{devices=[2,3]<=[6]}", "mesh": None},
        """
        source: a sharding in HLO notation needs a mesh
        got: {devices=[2,3]<=[6]}
        expected: mesh='x=2,y=3', a JAX mesh or a DeviceMesh
        """,
    ),
    "a mesh that is none": (
        {"mesh": 6},
        """
        mesh: a mesh must be a Mesh, its text, a dict of axes, a JAX mesh or a DeviceMesh
        got: 6
        expected: sw.Mesh({"x": 2, "y": 3}) or 'x=2,y=3'
        """,
    ),
    "a mesh of sizes": (
        {"target_mesh": {"x": "2"}},
        """
        target_mesh: an axis size must be an integer of at least 1
        got: '2'
        expected: 1, 2, 3, …
        """,
    ),
    "a split": (
        {"target_split": "nestd"},
        """
        target_split: unknown split; did you mean nested?
        got: nestd
        expected: one of flat, nested
        """,
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(case: str) -> None:
    changed, expected = MISTAKES[case]
    fields: dict[str, Any] = {
        "shape": (6, 6),
        "dtype": "f32",
        "source": "P('x')",
        "target": "P('y')",
        "mesh": "x=2,y=3",
        **changed,
    }
    assert message(lambda: Reshard(**fields)) == exactly(expected)


def test_mistakes_with_torch(tensor: Any) -> None:
    mesh = device_mesh((2, 2), [0, 1, 2, 3])
    kinds = "a Sharding, a NamedSharding, a PartitionSpec, placements or a text"
    assert message(lambda: Reshard((6,), "f32", tensor.Shard(0), "P()", mesh=mesh)) == exactly(
        f"""
        source: a sharding must be {kinds}
        got: Shard(dim=0)
        expected: one placement for each dimension of the mesh: [Shard(dim=0)]
        """
    )
    assert message(lambda: Mesh.of(mesh).sharding([tensor.Shard(0)] * 2)) == exactly(
        """
        placements alone do not give the rank of the tensor
        got: [Shard(dim=0), Shard(dim=0)]
        expected: mesh.sharding(placements, rank)
        """
    )
    assert message(lambda: Mesh(mesh)) == exactly(
        """
        axes: every axis of a mesh must have a name and a size
        got: DeviceMesh((a=2, b=2), 'cpu', stride=(2, 1))
        expected: of a DeviceMesh: sw.Mesh.of(device_mesh)
        """
    )
    strided = tensor.placement_types._StridedShard(0, split_factor=2)
    eight = device_mesh((2, 4), list(range(8)))
    placements = [strided, tensor.Shard(0)]
    assert message(lambda: Reshard((12,), "f32", placements, "P()", mesh=eight)) == exactly(
        """
        source: an extent must be divisible if a strided placement splits it by a sub-axis
        got: extent 12 of dimension 0, split as {"b":(1)2, "a", "b":(2)2}
        expected: a multiple of 8, or a split factor that is a product of sizes of whole axes
        """
    )
    backwards = device_mesh((2,), [1, 0])
    placements = [tensor.Shard(0)]
    assert message(lambda: Reshard((12,), "f32", placements, "P()", mesh=backwards)) == exactly(
        """
        source: ranks must ascend along a mesh dimension that splits a tensor, because torch \
places shards by rank in collectives and by mesh coordinate in slices
        got: Shard(dim=0) along a of <["a"=2], device_ids=[1, 0]>
        expected: a DeviceMesh of ascending ranks, or a Sharding in place of placements
        """
    )


def test_placements_without_brackets() -> None:
    mesh = Mesh({"x": 2, "y": 2})
    one, two = (
        mesh.sharding(text, 2) for text in ("Shard(0), Replicate()", "[Shard(0), Replicate()]")
    )
    assert one == two
