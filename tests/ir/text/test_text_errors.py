"""What is refused in a text: the whole message, and a caret under exactly the offending token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import exactly, message
from test_text import MANY, MESHES, SHARDINGS

from shardwright.ir import (
    InputError,
    Mesh,
    parse_mesh,
    parse_meshes,
    parse_shape,
    parse_sharding,
)

M = Mesh({"x": 2, "y": 4}, name="m")

# What each mistake says: the call's text, then the whole message.
BAD_SHARDINGS = [
    """
    the text is not a sharding; axis names need quotes (a shell removes them: quote the whole text)
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
    expected: ',', ']' or a priority such as p1
    """,
    """
    the text is not a sharding
      [{?, "x"}]
         ^
    got: ,
    expected: '}'
    """,
    """
    the text is not a sharding; did you mean replicated?
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
    expected: "x" in one place only
    """,
    """
    references to one axis must not overlap
      [{"y":(1)2}], replicated={"x", "y"}
                                     ^^^
    got: "y":(1)2 in dimension 0 and "y" in replicated={…}
    expected: sub-axes that do not overlap
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
    the number is too long
      [{"x"}p9999999999999999999]
            ^^^^^^^^^^^^^^^^^^^^
    got: 19 digits
    expected: at most 18 digits
    """,
    """
    replicated may be given only once
      [{"x"}], replicated={}, replicated={"y"}
                              ^^^^^^^^^^
    got: replicated twice
    """,
    """
    the mesh that a sharding names must be given
      <@other, [{"x"}]>
       ^^^^^^
    got: @other
    expected: @m
    """,
    """
    the mesh written in a sharding must equal the given mesh
      <mesh<["x"=2]>, [{"x"}]>
       ^^^^^^^^^^^^^
    got: <["x"=2]>
    expected: <["x"=2, "y"=4]>
    """,
    """
    an axis size must be an integer of at least 1
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
    expected: extents and an element type, for example tensor<4x8xf32>
    """,
    """
    the name of an axis must be printable text without quotes or backslashes
      [{"x"}, {""}]
               ^^
    got: ''
    expected: a name such as "x"
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
    expected: an axis such as x=2
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
    an axis size must be an integer of at least 1
      x=2,y=0
            ^
    got: 0
    expected: 1, 2, 3, …
    """,
    """
    an axis size must be an integer of at least 1
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
    expected: a different name
    """,
    """
    there must be one device id for each position of the mesh
      <["x"=2, "y"=2], device_ids=[0, 1, 2]>
                                  ^^^^^^^^^
    got: 3 device ids
    expected: 4, the product of "x"=2, "y"=2
    """,
    """
    device ids must be distinct
      {<["x"=3]>, device_ids=[0, 10, 0]}
                                     ^
    got: 0 twice
    expected: each id only once
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
    got: nothing in place of an id
    expected: 0, 1, 2, …
    """,
    """
    device_ids may be given only once
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
    got: nothing in place of an extent
    expected: extents, for example 6x6 or 6,6
    """,
    """
    the text is not a shape
      6 x two
          ^^^
    got: two
    expected: extents, for example 6x6 or 6,6
    """,
    """
    the text is not a shape
      6.5
      ^^^
    got: 6.5
    expected: extents, for example 6x6 or 6,6
    """,
    """
    the text is not a shape
      (6
      ^^
    got: (6
    expected: extents, for example 6x6 or 6,6
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
        expected: '<', 'mesh<', 'sdy.mesh', '{', a mesh name such as @mesh or an axis such as x=2
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
        --mesh: an axis size must be an integer of at least 1
          @more = <["x"=0]>
                        ^
        got: 0
        expected: 1, 2, 3, …
        """,
    ),
    "two meshes must not have the same name": (
        lambda: parse_meshes('@a = <["x"=2]>\n@a = <["x"=4]>'),
        """
        names of meshes must be distinct
          @a = <["x"=4]>
          ^^
        got: @a twice
        expected: a different name
        """,
    ),
    "a name among several": (
        lambda: parse_sharding("<@mesh_2, []>", parse_meshes(MANY)),
        """
        the mesh that a sharding names must be given; did you mean @mesh_1?
          <@mesh_2, []>
           ^^^^^^^
        got: @mesh_2
        expected: one of @mesh_0, @mesh_1, @one
        """,
    ),
    "a name and no mesh": (
        lambda: parse_sharding("<@mesh_2, []>"),
        """
        the mesh that a sharding names must be given
          <@mesh_2, []>
           ^^^^^^^
        got: @mesh_2
        expected: a mesh of that name
        """,
    ),
    "no mesh": (
        lambda: parse_sharding("[{}]"),
        """
        a sharding must name its mesh unless exactly one is given
          [{}]
          ^^^^
        got: 0 meshes
        expected: <@name, [...]> or <mesh<[...]>, [...]>
        """,
    ),
    "sub-axes that cannot coexist": (
        lambda: parse_sharding('[{"x":(3)2}, {"x":(1)2}]', Mesh({"x": 12})),
        """
        all sub-axes of an axis must fit one factorization of its size
          [{"x":(3)2}, {"x":(1)2}]
                        ^^^^^^^^
        got: "x":(3)2 in dimension 0 and "x":(1)2 in dimension 1
        expected: a pre-size of the later sub-axis that is a multiple of 2, not 3
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
