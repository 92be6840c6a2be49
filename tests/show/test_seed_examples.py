"""The worked examples of the resharding notes: contents of every device, formulas, both checks.

The pictures are the notes' own, mesh axes being 0, 1, 2. Where a picture or a line of theirs
disagrees with the definition of a sharding (axes major to minor, contiguous shards), the definition
is what is tested, and a comment says how the notes differ.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from elements import element_at, holders_of
from strategies import exactly, message

from shardwright.codegen.moves import plan
from shardwright.codegen.show.cuts import CutPicture, holders
from shardwright.codegen.show.formulas import layout_map
from shardwright.codegen.show.maps import ReshardMaps
from shardwright.codegen.show.pictures import element_lines, mesh_picture
from shardwright.ir import AxisRef, DimSharding, Mesh, Reshard, Sharding
from shardwright.ir.layout import Layout

# A sharding as the notes write it: per dimension the numbers of its mesh axes.
Numbers = list[list[int]]


def sharding(mesh: tuple[int, ...], dims: Numbers) -> Sharding:
    axes = {str(number): size for number, size in enumerate(mesh)}
    return Sharding(
        Mesh(axes), tuple(DimSharding(tuple(AxisRef(str(axis)) for axis in dim)) for dim in dims)
    )


def layout(mesh: tuple[int, ...], shape: tuple[int, ...], dims: Numbers) -> Layout:
    return Layout.of(sharding(mesh, dims), shape, "flat")


def picture(mesh: tuple[int, ...], shape: tuple[int, ...], dims: Numbers) -> str:
    return mesh_picture(sharding(mesh, dims), layout(mesh, shape, dims))


def cells(drawn: str) -> list[list[str]]:
    """The labels of every cell of a picture of one mesh row a band, left to right."""
    bands = re.split(r"^[+=-]+.*$", drawn, flags=re.MULTILINE)
    found: list[list[str]] = []
    for band in bands:
        rows = [re.split(r"[|‖]", line)[1:] for line in band.splitlines() if "|" in line]
        columns = [" ".join(texts).split() for texts in itertools.zip_longest(*rows, fillvalue="")]
        found += [column for column in columns if column]
    return found


def contents(mesh: tuple[int, ...], shape: tuple[int, ...], dims: Numbers) -> list[list[str]]:
    """The labels of the elements of every device, by id."""
    boxes = layout(mesh, shape, dims).boxes().tolist()
    return [
        " ".join(element_lines(tuple((low, high) for low, high in box))).split() for box in boxes
    ]


def moved(
    mesh: tuple[int, ...], shape: tuple[int, ...], before: Numbers, after: Numbers
) -> list[np.ndarray]:
    """What every device holds after the transfers of the direct plan are carried out."""
    reshard = Reshard(shape, "int32", sharding(mesh, before), sharding(mesh, after))
    planned = plan(reshard)
    tensor = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    sides = [layout(mesh, shape, dims).boxes() for dims in (before, after)]
    source = [tensor[_slices(box)] for box in sides[0]]
    target = [np.full(tensor[_slices(box)].shape, -1) for box in sides[1]]
    moves = planned.transfers()
    for number in range(len(moves)):
        taken = source[moves.sender[number]][_slices(moves.source[number])]
        target[moves.receiver[number]][_slices(moves.target[number])] = taken
    return target


def _slices(box: np.ndarray) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box.tolist())


EXAMPLES = [
    pytest.param((2, 3), (6,), [[0, 1]], [[1, 0]], id="swap of axes"),
    pytest.param((2, 3), (6,), [[0, 1]], [[1]], id="gather of the major axis"),
    pytest.param((2, 3), (4, 6), [[], [0, 1]], [[], [0]], id="gather of the minor axis"),
    pytest.param(
        (2, 2, 2), (4, 8), [[0], [1, 2]], [[0], [2]], id="gather of an axis in the middle"
    ),
    pytest.param((2, 3), (6, 6), [[0], [1]], [[1], [0]], id="transpose on 2x3"),
    pytest.param((2, 6), (6, 6), [[0], [1]], [[1], [0]], id="transpose on 2x6"),
    pytest.param((3, 4), (16, 23), [[0], [1]], [[1], [0]], id="first check"),
    pytest.param((5, 2), (27, 14), [[0], [1]], [[1], [0]], id="second check"),
    pytest.param((3,), (6, 6), [[0], []], [[], [0]], id="all to all"),
    pytest.param((2, 2, 2), (4, 4), [[0], [1, 2]], [[0, 1], [2]], id="move of a major axis"),
    pytest.param((2, 3), (6,), [[]], [[1]], id="basis: slice"),
    pytest.param((2, 3), (6,), [[0]], [[]], id="basis: gather"),
    pytest.param(
        (2, 2, 2, 2), (4, 4, 4), [[3, 2], [], [0, 1]], [[0], [1, 2], []], id="decomposition"
    ),
]


@pytest.mark.parametrize(("mesh", "shape", "before", "after"), EXAMPLES)
def test_the_plan_carries_out_the_example(
    mesh: tuple[int, ...], shape: tuple[int, ...], before: Numbers, after: Numbers
) -> None:
    tensor = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    boxes = layout(mesh, shape, after).boxes()
    for held, box in zip(moved(mesh, shape, before, after), boxes, strict=True):
        np.testing.assert_array_equal(held, tensor[_slices(box)])


def test_swap_of_axes() -> None:
    # Titled "[[0, 1]] to [[0, 1]]" of a 2x3 tensor: it goes to [[1, 0]], and the pictures are of
    # six elements in a row, numbered as a 2x3 matrix is.
    numbers = dict(zip("123456", ("11", "12", "13", "21", "22", "23"), strict=True))
    before = [[numbers[e] for e in held] for held in contents((2, 3), (6,), [[0, 1]])]
    assert before == cells("""
+----+----+----+
| 11 | 12 | 13 |
+----+----+----+
| 21 | 22 | 23 |
+----+----+----+
""")
    after = [[numbers[e] for e in held] for held in contents((2, 3), (6,), [[1, 0]])]
    assert after == cells("""
+----+----+----+
| 11 | 13 | 22 |
+----+----+----+
| 12 | 21 | 23 |
+----+----+----+
""")


def test_swap_exchanges_devices_of_one_linear_index() -> None:
    # "Swap contents on devices that have the same linear index in the 2 shardings."
    before, after = layout((2, 3), (6,), [[0, 1]]), layout((2, 3), (6,), [[1, 0]])
    reshard = Reshard((6,), "int32", sharding((2, 3), [[0, 1]]), sharding((2, 3), [[1, 0]]))
    moves = plan(reshard).transfers()
    for sender, receiver in zip(moves.sender.tolist(), moves.receiver.tolist(), strict=True):
        assert before.index(sender) == after.index(receiver)


def test_gathering_the_major_axis_would_interleave() -> None:
    # "[[0, 1]] to [[1]]: all-gather along mesh axis 0": that leaves 11 and 21 on a device, elements
    # 1 and 4 of six. A shard is contiguous: [[0, 1]] -> [[1, 0]] -> [[1]].
    gathered = [
        sorted(contents((2, 3), (6,), [[0, 1]])[n] + contents((2, 3), (6,), [[0, 1]])[3 + n])
        for n in range(3)
    ]
    assert gathered == [["1", "4"], ["2", "5"], ["3", "6"]]
    assert contents((2, 3), (6,), [[1]]) == [["1", "2"], ["3", "4"], ["5", "6"]] * 2
    swapped = contents((2, 3), (6,), [[1, 0]])
    assert [swapped[n] + swapped[3 + n] for n in range(3)] == [["1", "2"], ["3", "4"], ["5", "6"]]


def test_gather_of_the_minor_axis() -> None:
    # "Reshard 4x6 tensor" shows the two rows of a 2x6 tensor, and after it two of three columns of
    # the mesh.
    assert picture((2, 3), (2, 6), [[], [0, 1]]) == exactly("""
        mesh axis 1
        ----------->
        +----+----+----+ mesh axis 0 |
        | 11 | 12 | 13 |             |
        | 21 | 22 | 23 |             |
        +----+----+----+             |
        | 14 | 15 | 16 |             |
        | 24 | 25 | 26 |             |
        +----+----+----+             ↓
        """)
    assert picture((2, 3), (2, 6), [[], [0]]) == exactly("""
        mesh axis 1
        ----------->
        +----------+----------+----------+ mesh axis 0 |
        | 11 12 13 | 11 12 13 | 11 12 13 |             |
        | 21 22 23 | 21 22 23 | 21 22 23 |             |
        +----------+----------+----------+             |
        | 14 15 16 | 14 15 16 | 14 15 16 |             |
        | 24 25 26 | 24 25 26 | 24 25 26 |             |
        +----------+----------+----------+             ↓
        """)
    assert contents((2, 3), (4, 6), [[], [0, 1]])[0] == ["11", "21", "31", "41"]


def test_gather_of_an_axis_in_the_middle() -> None:
    assert picture((2, 2, 2), (4, 8), [[0], [1, 2]]) == exactly("""
        mesh axis 2
        ----------->
        +-------+-------+ mesh axis 1 | mesh axis 0 |
        | 11 12 | 13 14 |             |             |
        | 21 22 | 23 24 |             |             |
        +-------+-------+             |             |
        | 15 16 | 17 18 |             |             |
        | 25 26 | 27 28 |             |             |
        +-------+-------+             ↓             |
        +-------+-------+                           |
        | 31 32 | 33 34 |                           |
        | 41 42 | 43 44 |                           |
        +-------+-------+                           |
        | 35 36 | 37 38 |                           |
        | 45 46 | 47 48 |                           |
        +-------+-------+                           ↓
        """)
    assert picture((2, 2, 2), (4, 8), [[0], [2]]) == exactly("""
        mesh axis 2
        ----------->
        +-------------+-------------+ mesh axis 1 | mesh axis 0 |
        | 11 12 13 14 | 15 16 17 18 |             |             |
        | 21 22 23 24 | 25 26 27 28 |             |             |
        +-------------+-------------+             |             |
        | 11 12 13 14 | 15 16 17 18 |             |             |
        | 21 22 23 24 | 25 26 27 28 |             |             |
        +-------------+-------------+             ↓             |
        +-------------+-------------+                           |
        | 31 32 33 34 | 35 36 37 38 |                           |
        | 41 42 43 44 | 45 46 47 48 |                           |
        +-------------+-------------+                           |
        | 31 32 33 34 | 35 36 37 38 |                           |
        | 41 42 43 44 | 45 46 47 48 |                           |
        +-------------+-------------+                           ↓
        """)


def test_an_all_gather_needs_the_swap_first() -> None:
    # "Can't be done with just an all-gather along mesh axis 1": after [[0], [2, 1]] it can.
    swapped = contents((2, 2, 2), (4, 8), [[0], [2, 1]])
    after = contents((2, 2, 2), (4, 8), [[0], [2]])
    before = contents((2, 2, 2), (4, 8), [[0], [1, 2]])
    for x, z in itertools.product(range(2), range(2)):
        along = [4 * x + 2 * y + z for y in range(2)]
        assert sorted(swapped[along[0]] + swapped[along[1]]) == sorted(after[along[0]])
        assert sorted(before[along[0]] + before[along[1]]) != sorted(after[along[0]])


def test_transpose_on_2x3() -> None:
    assert picture((2, 3), (6, 6), [[0], [1]]) == exactly("""
        mesh axis 1
        ----------->
        +-------+-------+-------+ mesh axis 0 |
        | 11 12 | 13 14 | 15 16 |             |
        | 21 22 | 23 24 | 25 26 |             |
        | 31 32 | 33 34 | 35 36 |             |
        +-------+-------+-------+             |
        | 41 42 | 43 44 | 45 46 |             |
        | 51 52 | 53 54 | 55 56 |             |
        | 61 62 | 63 64 | 65 66 |             |
        +-------+-------+-------+             ↓
        """)
    assert picture((2, 3), (6, 6), [[1], [0]]) == exactly("""
        mesh axis 1
        ----------->
        +----------+----------+----------+ mesh axis 0 |
        | 11 12 13 | 31 32 33 | 51 52 53 |             |
        | 21 22 23 | 41 42 43 | 61 62 63 |             |
        +----------+----------+----------+             |
        | 14 15 16 | 34 35 36 | 54 55 56 |             |
        | 24 25 26 | 44 45 46 | 64 65 66 |             |
        +----------+----------+----------+             ↓
        """)


def test_transpose_on_2x6() -> None:
    # The notes write 23 where 25 belongs.
    assert contents((2, 6), (6, 6), [[0], [1]]) == cells("""
+----+----+----+----+----+----+
| 11 | 12 | 13 ‖ 14 | 15 | 16 |
| 21 | 22 | 23 ‖ 24 | 25 | 26 |
| 31 | 32 | 33 ‖ 34 | 35 | 36 |
+----+----+----+----+----+----+
| 41 | 42 | 43 ‖ 44 | 45 | 46 |
| 51 | 52 | 53 ‖ 54 | 55 | 56 |
| 61 | 62 | 63 ‖ 64 | 65 | 66 |
+----+----+----+----+----+----+
""")
    # Drawn with mesh axis 0 across: device (m, n) is in row n, column m.
    transposed = cells("""
+----------+----------+
| 11 12 13 | 14 15 16 |
+----------+----------+
| 21 22 23 | 24 25 26 |
+----------+----------+
| 31 32 33 | 34 35 36 |
+==========+==========+
| 41 42 43 | 44 45 46 |
+----------+----------+
| 51 52 53 | 54 55 56 |
+----------+----------+
| 61 62 63 | 64 65 66 |
+----------+----------+
""")
    held = contents((2, 6), (6, 6), [[1], [0]])
    assert [held[6 * m + n] for n in range(6) for m in range(2)] == transposed


def test_all_to_all() -> None:
    assert picture((3,), (6, 6), [[0], []]) == exactly("""
        +-------------------+ mesh axis 0 |
        | 11 12 13 14 15 16 |             |
        | 21 22 23 24 25 26 |             |
        +-------------------+             |
        | 31 32 33 34 35 36 |             |
        | 41 42 43 44 45 46 |             |
        +-------------------+             |
        | 51 52 53 54 55 56 |             |
        | 61 62 63 64 65 66 |             |
        +-------------------+             ↓
        """)
    assert picture((3,), (6, 6), [[], [0]]) == exactly("""
        mesh axis 0
        ----------->
        +-------+-------+-------+
        | 11 12 | 13 14 | 15 16 |
        | 21 22 | 23 24 | 25 26 |
        | 31 32 | 33 34 | 35 36 |
        | 41 42 | 43 44 | 45 46 |
        | 51 52 | 53 54 | 55 56 |
        | 61 62 | 63 64 | 65 66 |
        +-------+-------+-------+
        """)


def test_move_of_a_major_axis() -> None:
    assert contents((2, 2, 2), (4, 4), [[0], [1, 2]]) == [
        *(["11", "21"], ["12", "22"], ["13", "23"], ["14", "24"]),
        *(["31", "41"], ["32", "42"], ["33", "43"], ["34", "44"]),
    ]
    # The notes write 41 where 14 belongs.
    assert picture((2, 2, 2), (4, 4), [[0, 1], [2]]) == exactly("""
        mesh axis 2
        ----------->
        +-------+-------+ mesh axis 1 | mesh axis 0 |
        | 11 12 | 13 14 |             |             |
        +-------+-------+             |             |
        | 21 22 | 23 24 |             |             |
        +-------+-------+             ↓             |
        +-------+-------+                           |
        | 31 32 | 33 34 |                           |
        +-------+-------+                           |
        | 41 42 | 43 44 |                           |
        +-------+-------+                           ↓
        """)


def test_formulas() -> None:
    row, column = layout_map(sharding((2, 3), [[0], [1]])), layout_map(sharding((2, 3), [[1], [0]]))
    assert str(row.forward_text()) == (
        "d(m, n)[k, l] -> t[m * (K ceildiv M) + k, n * (L ceildiv N) + l]"
    )
    assert str(row.inverse_text()) == (
        "t[i, j] -> d(i floordiv (K ceildiv M), j floordiv (L ceildiv N))"
        "[i % (K ceildiv M), j % (L ceildiv N)]"
    )
    assert str(column.forward_text()) == (
        "d(m, n)[k, l] -> t[n * (K ceildiv N) + k, m * (L ceildiv M) + l]"
    )
    assert str(column.inverse_text()) == (
        "t[i, j] -> d(j floordiv (L ceildiv M), i floordiv (K ceildiv N))"
        "[i % (K ceildiv N), j % (L ceildiv M)]"
    )


def test_first_check() -> None:
    # i = 13, j = 17, M = 3, N = 4, K = 16, L = 23: t[13, 17] = d(2, 2)[1, 5] = t[13, 17]
    placed = layout((3, 4), (16, 23), [[0], [1]])
    assert placed.local_shape == (6, 6)
    assert holders_of(placed, (13, 17)) == ((2 * 4 + 2,), (1, 5))
    assert element_at(placed, 2 * 4 + 2, (1, 5)) == (13, 17)
    formulas = layout_map(sharding((3, 4), [[0], [1]]), (16, 23))
    assert str(formulas.inverse_text()) == "t[i, j] -> d(i floordiv 6, j floordiv 6)[i % 6, j % 6]"


def test_second_check() -> None:
    # i = 9, j = 19, M = 5, N = 2, K = 27, L = 14: the notes compute d(6, 0)[9, 1] and t[9, 19].
    # Column 19 is outside a tensor of 14 columns, device 6 outside a mesh of 5.
    placed = layout((5, 2), (27, 14), [[1], [0]])
    assert placed.local_shape == (14, 3)
    assert message(lambda: holders_of(placed, (9, 19))) == exactly("""
        element: an element must be in the tensor
        got: [9, 19]
        expected: each index below its extent, [27, 14]
        """)
    assert message(lambda: element_at(placed, 6 * 2 + 0, (9, 1))) == exactly("""
        position: a position must be in the mesh
        got: 12
        expected: 0 to 9
        """)
    # The last column there is: on d(4, 0), whose shard has 2 of 3 columns.
    assert holders_of(placed, (9, 13)) == ((4 * 2 + 0,), (9, 1))
    assert element_at(placed, 4 * 2 + 0, (9, 1)) == (9, 13)
    assert message(lambda: element_at(placed, 4 * 2 + 0, (9, 2))) == exactly("""
        local: a local index must be in its shard
        got: [9, 2]
        expected: each index below its extent, [14, 2]
        """)


def transpose(mesh: tuple[int, ...], shape: tuple[int, ...]) -> Reshard:
    return Reshard(shape, "int32", sharding(mesh, [[0], [1]]), sharding(mesh, [[1], [0]]))


def test_composed_map() -> None:
    # The notes substitute the target's own forward map, so that all ends at d2(m, n)[k, l].
    assert ReshardMaps.of(transpose((2, 3), (6, 6)), symbols=True).composed_text() == exactly("""
        d1(m, n)[k, l] ->
        t[m * (K ceildiv M) + k, n * (L ceildiv N) + l] ->
        d2(
            (n * (L ceildiv N) + l) floordiv (L ceildiv M),
            (m * (K ceildiv M) + k) floordiv (K ceildiv N),
        )[
            (m * (K ceildiv M) + k) % (K ceildiv N),
            (n * (L ceildiv N) + l) % (L ceildiv M),
        ]
        = d2(p, q)[u, v]
        """)


@pytest.mark.parametrize(("mesh", "shape"), [((2, 3), (6, 6)), ((3, 4), (16, 23))])
def test_composed_map_ends_at_the_element(mesh: tuple[int, int], shape: tuple[int, int]) -> None:
    reshard = transpose(mesh, shape)
    maps = ReshardMaps.of(reshard, symbols=False)
    source, target = (Layout.of(side, shape, "flat") for side in (reshard.source, reshard.target))
    placed, local = maps.composed()
    symbols = (*maps.source.coordinates, *maps.source.local)
    for element in itertools.product(*map(range, shape)):
        ((position,), local_index) = holders_of(source, element)
        values = dict(zip(symbols, (*divmod(position, mesh[1]), *local_index), strict=True))
        p, q, u, v = (int(value.xreplace(values)) for value in (*placed, *local))
        assert element_at(target, p * mesh[1] + q, (u, v)) == element


def test_composed_map_by_hand() -> None:
    # d1(0, 1)[0, 0] is t[0, 2]; d2(0, 1)[0, 0], where the notes end, is t[2, 0].
    source, target = layout((2, 3), (6, 6), [[0], [1]]), layout((2, 3), (6, 6), [[1], [0]])
    assert element_at(source, 1, (0, 0)) == (0, 2)
    assert element_at(target, 1, (0, 0)) == (2, 0)
    assert holders_of(target, (0, 2)) == ((0,), (0, 2))


def test_cut_pattern_on_2x3() -> None:
    """Source and target device of every tile of a KxL tensor, numbered 11 12 13 / 21 22 23."""
    picture = CutPicture.of(plan(transpose((2, 3), (12, 12))).exchange, 16)
    assert [band.low for band in picture.rows] == [0, 4, 6, 8]
    assert [band.low for band in picture.columns] == [0, 4, 6, 8]

    def name(device: int) -> str:
        return f"{device // 3 + 1}{device % 3 + 1}"

    tiles = []
    for row in picture.rows:
        shards = (picture.shards(row, column) for column in picture.columns)
        tiles.append(
            [
                f"{name(holders(picture.exchange.source, source)[0])} "
                f"{name(holders(picture.exchange.target, target)[0])}"
                for source, target in shards
            ]
        )
    assert tiles == [
        ["11 11", "12 11", "12 21", "13 21"],
        ["11 12", "12 12", "12 22", "13 22"],
        ["21 12", "22 12", "22 22", "23 22"],
        ["21 13", "22 13", "22 23", "23 23"],
    ]


@pytest.mark.parametrize(
    ("mesh", "shape", "steps"),
    [
        ((2, 3), (6, 6), [[[0], [1]], [[0], []], [[], [0]], [[1], [0]]]),
        (
            (2, 2, 2, 2),
            (4, 4, 4),
            [
                [[3, 2], [], [0, 1]],
                [[3, 2], [1], [0]],
                [[3], [1, 2], [0]],
                [[], [1, 2], [0]],
                [[0], [1, 2], []],
            ],
        ),
    ],
)
def test_decompositions(
    mesh: tuple[int, ...], shape: tuple[int, ...], steps: list[Numbers]
) -> None:
    """Every step, and the way from end to end, leaves each device with its shard."""
    tensor = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    for before, after in [*itertools.pairwise(steps), (steps[0], steps[-1])]:
        boxes = layout(mesh, shape, after).boxes()
        for held, box in zip(moved(mesh, shape, before, after), boxes, strict=True):
            np.testing.assert_array_equal(held, tensor[_slices(box)])
