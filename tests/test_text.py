"""Text of meshes, shardings and shapes: what is read, what is printed, what is refused where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import exactly, meshes, message, shardings

from shardwright.ir import (
    InputError,
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
    ("<[]>", "<[], device_ids=[0]>", None),
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


M = Mesh({"x": 2, "y": 4}, name="m")

# What each mistake says: the call's text, then the whole message.
BAD_SHARDINGS = [
    """
    the text is not a sharding
      [{x}]
        ^
    got: x
    expected: '?', '}' or an axis name in quotes
    """,
    """
    the text is not a sharding
      [{"x"}
            ^
    got: the end of the text
    expected: ',', ']' or a priority as p1
    """,
    """
    the text is not a sharding
      [{?, "x"}]
         ^
    got: ,
    expected: '}'
    """,
    """
    the text is not a sharding
      [{"x"}], replicate={"y"}
               ^^^^^^^^^
    got: replicate
    expected: 'replicated', 'unreduced'
    """,
    """
    the text is not a sharding
      [{"x"}], replicated={} }
                             ^
    got: }
    expected: ':' or the end
    """,
    """
    the text is not a sharding
      sharding<@m, [{"x"}]
                          ^
    got: the end of the text
    expected: '>'
    """,
    """
    the text is not a sharding
      [{"y":(2)}]
               ^
    got: }
    expected: an integer
    """,
    """
    an axis must exist in the mesh
      [{"x"}, {"w"}]
               ^^^
    got: "w"
    expected: one of "x", "y"
    """,
    """
    an axis must exist in the mesh
      [{"x"}], unreduced={"w":(2)2}
                          ^^^^^^^^
    got: "w"
    expected: one of "x", "y"
    """,
    """
    an axis or sub-axis may be used only once
      [{"x", "y"}, {"x"}]
                    ^^^
    got: "x" in dimension 0 and in dimension 1
    expected: "x" at one place
    """,
    """
    references to one axis must not overlap
      [{"y":(1)2}], replicated={"x", "y"}
                                     ^^^
    got: "y":(1)2 in dimension 0 and "y" in replicated={…}
    expected: sub-axes of which one ends where, or before, the other begins
    """,
    """
    the pre-size of a sub-axis must divide its axis
      [{"y":(3)2}]
        ^^^^^^^^
    got: pre-size 3 in "y":(3)2
    expected: a divisor of 4, the size of "y"
    """,
    """
    the pre-size of a sub-axis must be at least 1
      [{"y":(-1)2}]
        ^^^^^^^^^
    got: pre-size -1 in "y":(-1)2
    expected: 1, 2, 3, …
    """,
    """
    the size of a sub-axis must be greater than 1
      [{}, {"y":(2)1}]
            ^^^^^^^^
    got: size 1 in "y":(2)1
    expected: 2, 3, 4, …
    """,
    """
    an empty closed dimension cannot have a priority: it would have no effect
      [{"x"}, {}p3]
                ^^
    got: {}p3
    expected: {} or {?}p3
    """,
    """
    a priority must be an integer of zero or more
      [{"x"}p-1]
            ^^^
    got: -1
    expected: p0, p1, p2, …
    """,
    """
    a priority must be p and a number without leading zeros
      [{"x"}phigh]
            ^^^^^
    got: phigh
    expected: p0, p1, p2, …
    """,
    """
    a priority must be p and a number without leading zeros
      [{"x"}p01]
            ^^^
    got: p01
    expected: p0, p1, p2, …
    """,
    """
    a number must be of a sensible size
      [{"x"}p9999999999999999999]
            ^^^^^^^^^^^^^^^^^^^^
    got: 19 digits
    expected: at most 18 digits
    """,
    """
    replicated may be given once
      [{"x"}], replicated={}, replicated={"y"}
                              ^^^^^^^^^^
    got: replicated twice
    """,
    """
    a sharding must name a mesh that is given
      <@other, [{"x"}]>
       ^^^^^^
    got: @other
    expected: @m
    """,
    """
    the mesh a sharding spells out must be the one it is given for
      <mesh<["x"=2]>, [{"x"}]>
       ^^^^^^^^^^^^^
    got: <["x"=2]>
    expected: <["x"=2, "y"=4]>
    """,
    """
    an axis size must be at least 1
      <mesh<["x"=0]>, [{"x"}]>
                 ^
    got: 0
    expected: 1, 2, 3, …
    """,
    """
    there must be one dimension sharding for each dimension of the tensor
      sharding<@m, [{"x"}], replicated={"y"}> : tensor<4x8xf32>
                   ^^^^^^^
    got: 1 dimension sharding for a tensor of rank 2
    expected: 2 dimension shardings
    """,
    """
    the text is not a tensor type
      [{"x"}] : tensor<4>
                ^^^^^^^^^
    got: tensor<4>
    expected: extents and an element type, as tensor<4x8xf32>
    """,
    """
    the name of an axis must be printable text without quotes and backslashes
      [{"x"}, {""}]
               ^^
    got: ''
    expected: a name as "x"
    """,
]

BAD_MESHES = [
    """
    the text is not a mesh
      x
       ^
    got: the end of the text
    expected: '='
    """,
    """
    the text is not a mesh
      x=2,
          ^
    got: the end of the text
    expected: an axis as x=2
    """,
    """
    the text is not a mesh
      <["x"=two]>
            ^^^
    got: two
    expected: an integer
    """,
    """
    the text is not a mesh
      <["x"=2], device_ids=[0, 1>
                           ^
    got: [
    expected: a list of device ids in brackets
    """,
    """
    an axis size must be at least 1
      x=2,y=0
            ^
    got: 0
    expected: 1, 2, 3, …
    """,
    """
    an axis size must be at least 1
      <["x"=-2]>
            ^^
    got: -2
    expected: 1, 2, 3, …
    """,
    """
    axis names must be distinct
      x=2,x=3
          ^
    got: "x" twice
    expected: another name
    """,
    """
    there must be as many device_ids as the mesh has positions
      <["x"=2, "y"=2], device_ids=[0, 1, 2]>
                                  ^^^^^^^^^
    got: 3 device_ids
    expected: 4, the product of "x"=2, "y"=2
    """,
    """
    device ids must be distinct
      {<["x"=3]>, device_ids=[0, 10, 0]}
                                     ^
    got: 0 twice
    expected: every device at one position
    """,
    """
    a device id must be zero or more
      <["x"=2], device_ids=[0, -1]>
                               ^^
    got: -1
    expected: 0, 1, 2, …
    """,
    """
    a device id must be an integer
      <["x"=2], device_ids=[0, b]>
                               ^
    got: b
    expected: 0, 1, 2, …
    """,
    """
    a device id must be an integer
      <["x"=2], device_ids=[0, 1,]>
                                 ^
    got: nothing where an id should stand
    expected: 0, 1, 2, …
    """,
    """
    device_ids may be given once
      {<["x"=2], device_ids=[0, 1]>, device_ids=[0, 1]}
                                                ^^^^^^
    got: two lists
    """,
]

BAD_SHAPES = [
    """
    the text is not a shape
      6x
        ^
    got: nothing where an extent should stand
    expected: extents, as 6x6 or 6,6
    """,
    """
    the text is not a shape
      6 x two
          ^^^
    got: two
    expected: extents, as 6x6 or 6,6
    """,
    """
    the text is not a shape
      6.5
      ^^^
    got: 6.5
    expected: extents, as 6x6 or 6,6
    """,
    """
    the text is not a shape
      (6
      ^^
    got: (6
    expected: extents, as 6x6 or 6,6
    """,
    """
    shape: an extent must be an integer of at least 1
      4x0
        ^
    got: 0 for dimension 1
    expected: 1, 2, 3, …
    """,
    """
    shape: an extent must be an integer of at least 1
      -4x2
      ^^
    got: -4 for dimension 0
    expected: 1, 2, 3, …
    """,
    """
    shape: a tensor may have at most 8 dimensions
      1x1x1x1x1x1x1x1x1
      ^^^^^^^^^^^^^^^^^
    got: 9 dimensions
    expected: 8 or fewer
    """,
]


def offending(expected: str) -> str:
    return exactly(expected).splitlines()[1][2:]


@pytest.mark.parametrize("expected", BAD_SHARDINGS, ids=offending)
def test_invalid_sharding(expected: str) -> None:
    assert message(lambda: parse_sharding(offending(expected), M)) == exactly(expected)


@pytest.mark.parametrize("expected", BAD_MESHES, ids=offending)
def test_invalid_mesh(expected: str) -> None:
    assert message(lambda: parse_mesh(offending(expected))) == exactly(expected)


@pytest.mark.parametrize("expected", BAD_SHAPES, ids=offending)
def test_invalid_shape(expected: str) -> None:
    assert message(lambda: parse_shape(offending(expected))) == exactly(expected)


OTHER = {
    "no text": (
        lambda: parse_mesh(""),
        """
        the text is not a mesh

          ^
        got: the end of the text
        expected: '<', 'mesh<', 'sdy.mesh', '{', a mesh name as @mesh or an axis as x=2
        """,
    ),
    "the argument is named": (
        lambda: parse_sharding('[{"q"}]', M, "--source"),
        """
        --source: an axis must exist in the mesh
          [{"q"}]
            ^^^
        got: "q"
        expected: one of "x", "y"
        """,
    ),
    "the second line": (
        lambda: parse_meshes(MANY + '@more = <["x"=0]>', "--mesh"),
        """
        --mesh: an axis size must be at least 1
          @more = <["x"=0]>
                        ^
        got: 0
        expected: 1, 2, 3, …
        """,
    ),
    "two meshes of one name": (
        lambda: parse_meshes('@a = <["x"=2]>\n@a = <["x"=4]>'),
        """
        names of meshes must be distinct
          @a = <["x"=4]>
          ^^
        got: @a twice
        expected: another name
        """,
    ),
    "a name among several": (
        lambda: parse_sharding("<@mesh_2, []>", parse_meshes(MANY)),
        """
        a sharding must name a mesh that is given
          <@mesh_2, []>
           ^^^^^^^
        got: @mesh_2
        expected: one of @mesh_0, @mesh_1, @one
        """,
    ),
    "a name and no mesh": (
        lambda: parse_sharding("<@mesh_2, []>"),
        """
        a sharding must name a mesh that is given
          <@mesh_2, []>
           ^^^^^^^
        got: @mesh_2
        expected: a mesh of that name
        """,
    ),
    "no mesh": (
        lambda: parse_sharding("[{}]"),
        """
        a sharding must say its mesh unless exactly one is given
          [{}]
          ^^^^
        got: 0 meshes
        expected: <@name, [...]> or <mesh<[...]>, [...]>
        """,
    ),
    "sub-axes that cannot coexist": (
        lambda: parse_sharding('[{"x":(3)2}, {"x":(1)2}]', Mesh({"x": 12})),
        """
        sub-axes of one axis must be able to coexist in one splitting of it
          [{"x":(3)2}, {"x":(1)2}]
                        ^^^^^^^^
        got: "x":(3)2 in dimension 0 and "x":(1)2 in dimension 1
        expected: the later pre-size, 3, to be a multiple of 2
        """,
    ),
}


@pytest.mark.parametrize("case", OTHER)
def test_invalid(case: str) -> None:
    call, expected = OTHER[case]
    lines = [line.rstrip() for line in message(call).splitlines()]
    assert "\n".join(lines) == exactly(expected)


CHARACTERS = '"xy?{}[]()<>,:=@#.p- 0129\n\t/é'


@given(st.data())
def test_any_text_is_read_or_refused_at_a_place_in_it(data: st.DataObject) -> None:
    kinds = (
        (parse_mesh, [text for text, _, _ in MESHES]),
        (lambda text: parse_sharding(text, M), [text for _, text, _ in SHARDINGS]),
        (parse_meshes, [MANY]),
        (parse_shape, ["6x6", "(1, 2)"]),
    )
    parse, texts = data.draw(st.sampled_from(kinds))
    text = data.draw(st.sampled_from(texts))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 2))
        text = text[:at] + data.draw(st.text(CHARACTERS, max_size=2)) + text[at + cut :]
    error = refused(parse, text)
    if error is not None:
        assert error.text == text
        assert error.span is not None
        assert 0 <= error.span[0] <= error.span[1] <= len(text)
        assert "^" in str(error)


def refused(parse: Callable[[str], object], text: str) -> InputError | None:
    """The InputError of reading a text, if there is one; any other error goes through."""
    try:
        parse(text)
    except InputError as error:
        return error
    return None
