"""Text of meshes, shardings and shapes: what is read, and what is printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import meshes, shardings

from shardwright.ir import (
    Mesh,
    parse_mesh,
    parse_meshes,
    parse_shape,
    parse_sharding,
)

# Every mesh of the first seed, as it is written there, and every other form; with the names.
MESHES = [
    ('@mesh_xy = <["x"=2, "y"=2]>', '<["x"=2, "y"=2]>', "mesh_xy"),
    ('@mesh_xy = <["x"=2, "y"=4, "z"=2]>', '<["x"=2, "y"=4, "z"=2]>', "mesh_xy"),
    ('@mesh_xy = <["c"=2, "a"=2, "b"=2]>', '<["c"=2, "a"=2, "b"=2]>', "mesh_xy"),
    ('@mesh_x = <["x"=4]>', '<["x"=4]>', "mesh_x"),
    ('@mesh_full = <"devices"=8>', '<["devices"=8]>', "mesh_full"),
    ('@mesh_xy = <"x"=4, "y"=2>', '<["x"=4, "y"=2]>', "mesh_xy"),
    (
        '@mesh_0 = {<["a"=4, "b"=2]>, device_ids=[0, 1, 2, 3, 4, 5, 6, 7]}',
        '<["a"=4, "b"=2]>',
        "mesh_0",
    ),
    (
        '@mesh_1 = {<["x"=2, "y"=2]>, device_ids=[0, 2, 1, 3]}',
        '<["x"=2, "y"=2], device_ids=[0, 2, 1, 3]>',
        "mesh_1",
    ),
    ('@mesh_xy = <["w"=6, "x"=2, "y"=4, "z"=2]>', '<["w"=6, "x"=2, "y"=4, "z"=2]>', "mesh_xy"),
    (
        '<["x"=2,"y"=3],device_ids=[5,4,3,2,1,0]>',
        '<["x"=2, "y"=3], device_ids=[5, 4, 3, 2, 1, 0]>',
        None,
    ),
    ('{<["x"=2], device_ids=[1, 0]>}', '<["x"=2], device_ids=[1, 0]>', None),
    ('<"x"=2, device_ids=[1, 0]>', '<["x"=2], device_ids=[1, 0]>', None),
    ('#sdy.mesh<["x"=2, "y"=3]>', '<["x"=2, "y"=3]>', None),
    ('mesh<["x"=2]>', '<["x"=2]>', None),
    ('sdy.mesh @a.b-1 = <["x"=2]>', '<["x"=2]>', "a.b-1"),
    (
        "sdy.mesh @maximal_mesh = #sdy.mesh<[], device_ids=[0]>",
        "<[], device_ids=[0]>",
        "maximal_mesh",
    ),
    ("<[], device_ids=[3]>", "<[], device_ids=[3]>", None),
    ("<[]>", "<[]>", None),
    ("<[], device_ids=[0]>", "<[], device_ids=[0]>", None),
    ("x=2,y=3", '<["x"=2, "y"=3]>', None),
    (" x = 2 , y = 3 ", '<["x"=2, "y"=3]>', None),
    ("mesh=2,device_ids=1,replicated=3", '<["mesh"=2, "device_ids"=1, "replicated"=3]>', None),
    ('<["a b/c"=2]> // two devices', '<["a b/c"=2]>', None),
]


@pytest.mark.parametrize(("text", "canonical", "name"), MESHES)
def test_mesh(text: str, canonical: str, name: str | None) -> None:
    mesh = parse_mesh(text)
    assert (str(mesh), mesh.name) == (canonical, name)
    assert parse_mesh(canonical) == mesh
    assert Mesh.parse(text) == mesh


MANY = """
// devices 0, 1, 2, 3 twice
@mesh_0 = {<["a"=2, "b"=2]>, device_ids=[0, 1, 2, 3]}
@mesh_1 = {<["x"=4]>, device_ids=[3, 2, 1, 0]}
sdy.mesh @one = <[], device_ids=[3]>
"""


def test_several_meshes() -> None:
    meshes = parse_meshes(MANY)
    assert [(m.name, str(m)) for m in meshes] == [
        ("mesh_0", '<["a"=2, "b"=2]>'),
        ("mesh_1", '<["x"=4], device_ids=[3, 2, 1, 0]>'),
        ("one", "<[], device_ids=[3]>"),
    ]
    assert parse_sharding('<@mesh_1, [{"x"}]>', meshes).mesh is meshes[1]
    assert parse_sharding("#sdy.sharding<@one, []>", meshes).mesh is meshes[2]
    assert parse_meshes(" ") == ()


# Every sharding of the first seed, as it is written there, then every other form.
SHARDINGS = [
    (
        '@mesh_xy = <["x"=2, "y"=4, "z"=2]>',
        'sharding<@mesh_xy, [{"x"}, {"z", "y"}]> : tensor<4x8xf32>',
        '[{"x"}, {"z", "y"}]',
    ),
    (
        '@mesh_xy = <["x"=2, "y"=4, "z"=2]>',
        'sharding<@mesh_xy, [{"x"}, {"z", ?}]> : tensor<4x8xf32>',
        '[{"x"}, {"z", ?}]',
    ),
    (
        '@mesh_xyz = <["x"=2, "y"=4, "z"=2]>',
        'sharding<@mesh_xyz, [{"x"}, {?}], replicated={"y"}> : tensor<4x8xf32>',
        '[{"x"}, {?}], replicated={"y"}',
    ),
    ('@mesh_x = <["x"=4]>', '{sdy.sharding=<@mesh_x, [{"x"}]>}', '[{"x"}]'),
    (
        '@mesh_x = <["x"=4]>',
        '{sdy.sharding_per_value=<[<@mesh_x, [{"x":(1)2}, {"x":(2)2}]>]>}',
        '[{"x":(1)2}, {"x":(2)2}]',
    ),
    (
        '@mesh_xyz = <["x"=2, "y"=8, "z"=2]>',
        'sharding<@mesh_xyz, [{"x"}, {"y":(2)2}]> : tensor<4x8xf32>',
        '[{"x"}, {"y":(2)2}]',
    ),
    (
        '@mesh_xy = <"x"=4, "y"=2>',
        'sharding<@mesh_xy, [{"x"},{ "y"}]> : tensor<4x4xf32>',
        '[{"x"}, {"y"}]',
    ),
    (
        '@mesh_full = <"devices"=8>',
        'sharding<@mesh_full, [{"devices":(1)4}, {"devices":(4)2}]> : tensor<4x4xf32>',
        '[{"devices":(1)4}, {"devices":(4)2}]',
    ),
    (
        '@mesh_xyz = <["x"=2, "y"=8, "z"=2]>',
        'sharding<@mesh_xyz, [{"x"}, {"y":(2)2}], replicated={"y":(1)2}> : tensor<4x8xf32>',
        '[{"x"}, {"y":(2)2}], replicated={"y":(1)2}',
    ),
    (
        '@mesh_xy = <["w"=6, "x"=2, "y"=4, "z"=2]>',
        'sharding<@mesh_xy, [{"x"}p1, {"y"}, {"z",?}p2], replicated={}>',
        '[{"x"}p1, {"y"}, {"z", ?}p2]',
    ),
    (
        '@mesh_xy = <["x"=8, "y"=2, "z"=3]>',
        'sharding<@mesh_xy, [{"x"}, {"y"}, {"z"}]> : tensor<7x3x8xf32>',
        '[{"x"}, {"y"}, {"z"}]',
    ),
    (
        '@mesh = <["w"=2, "x"=2, "y"=4, "z"=2]>',
        '#sdy.sharding<@mesh, [{"x"}, {"z", ?}p2], replicated={"y":(1)2}, unreduced={"w"}>',
        '[{"x"}, {"z", ?}p2], replicated={"y":(1)2}, unreduced={"w"}',
    ),
    ("x=2", '[{"x"}], unreduced={}, replicated={}', '[{"x"}]'),
    ("x=2,y=2", '[], unreduced={"x"}, replicated={"y"}', '[], replicated={"y"}, unreduced={"x"}'),
    ("x=2", '#sdy.sharding<mesh<["x"=2]>, [{"x"}p0]>', '[{"x"}p0]'),
    ("x=2", '<#sdy.mesh<["x"=2]>, [{"x"}]>', '[{"x"}]'),
    ("x=2", '<@anything, [{"x"}]>', '[{"x"}]'),
    ("x=2", 'sdy.sharding = #sdy.sharding<@m, [{"x"}]> : tensor<?xbf16>', '[{"x"}]'),
    ("x=2", '#sdy.sharding_per_value<[<@m, [{"x"}]>]>', '[{"x"}]'),
    ("x=2", "[] : tensor<f32>", "[]"),
    ("<[], device_ids=[3]>", "#sdy.sharding<mesh<[], device_ids=[3]>, []>", "[]"),
    ("<[], device_ids=[3]>", "<@maximal_mesh_3, []> : tensor<4x8xf32>", "[{}, {}]"),
    ("x=2", '[\n  {"x"},  // rows\n  {?}\n]', '[{"x"}, {?}]'),
]


@pytest.mark.parametrize(("mesh_text", "text", "canonical"), SHARDINGS)
def test_sharding(mesh_text: str, text: str, canonical: str) -> None:
    mesh = parse_mesh(mesh_text)
    sharding = parse_sharding(text, mesh)
    assert str(sharding) == canonical
    assert parse_sharding(canonical, mesh) == sharding
    assert mesh.sharding(text) == sharding


def test_a_sharding_that_spells_out_its_mesh_needs_no_other() -> None:
    sharding = parse_sharding('#sdy.sharding<mesh<["x"=2], device_ids=[1, 0]>, [{"x"}]>')
    assert str(sharding.mesh) == '<["x"=2], device_ids=[1, 0]>'


@given(meshes())
def test_a_mesh_read_from_its_text_is_the_mesh(mesh: Mesh) -> None:
    assert parse_mesh(str(mesh)) == mesh


@given(st.data())
def test_a_sharding_read_from_its_text_is_the_sharding(data: st.DataObject) -> None:
    sharding = data.draw(shardings())
    assert parse_sharding(str(sharding), sharding.mesh) == sharding
    if not sharding.mesh.is_maximal:
        assert parse_sharding(sharding.to_sdy()) == sharding


def test_many_device_ids_are_read() -> None:
    mesh = Mesh({"x": 65536}, [*range(1, 65536), 0])
    assert parse_mesh(str(mesh)) == mesh


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("6x6", (6, 6)),
        ("6,6", (6, 6)),
        (" 6 x 6 ", (6, 6)),
        ("(6, 6)", (6, 6)),
        ("[6, 6]", (6, 6)),
        ("(7,)", (7,)),
        ("7", (7,)),
        ("()", ()),
        ("[ ]", ()),
        ("1x2x3x4x5x6x7x8", (1, 2, 3, 4, 5, 6, 7, 8)),
    ],
)
def test_shape(text: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(text) == shape
