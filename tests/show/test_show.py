"""What `show` says: formulas and their proof, the derivation, the tile table, the pictures."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import exactly, meshes, shardings

from shardwright.codegen.moves import plan
from shardwright.codegen.show import derivation, pictures, svg, tile_table
from shardwright.codegen.show.cuts import CutPicture, holders_text
from shardwright.codegen.show.review import review_page
from shardwright.ir import AxisRef, DimSharding, Mesh, Reshard, Sharding
from shardwright.ir.algebra.bounds import divisor
from shardwright.ir.algebra.index import Index, Maximum
from shardwright.ir.layout import Layout
from shardwright.ir.plan import DirectPlan, Plan

XY = Mesh({"x": 2, "y": 3})
TRANSPOSE = Reshard((6, 6), "float32", XY.sharding('[{"x"}, {"y"}]'), XY.sharding('[{"y"}, {"x"}]'))


def test_derivation() -> None:
    text = derivation(TRANSPOSE)
    for line in exactly("""
        K = 6, L = 6: the extents of the tensor t
        d(m, n) is device m * N + n
        d(m, n)[k, l] -> t[m * (K ceildiv M) + k, n * (L ceildiv N) + l]
        t after d and d after t are the identity, proved for all sizes by the identities, 14 steps
        d(m, n)[k, l] -> t[n * 2 + k, m * 3 + l]
        (m * (K ceildiv M) + k) floordiv (K ceildiv N),
        dimension 0: a = m, S = K ceildiv M = 3; b = q, T = K ceildiv N = 2
        i in [max(m * 3, q * 2), min(m * 3 + 3, q * 2 + 2))
        k in [max(0, q * 2 - m * 3), min(3, q * 2 + 2 - m * 3))
        u in [max(m * 3 - q * 2, 0), min(m * 3 + 3 - q * 2, 2))
        dimension 0: target shard b meets source shards (b * 2) floordiv 3 to (b * 2 + 1) floordiv 3
        source shard a meets target shards (a * 3) floordiv 2 to ((a * 3) floordiv 2) + 1
        dimension 0: g = gcd(3, 2) = 1; the cuts repeat every S * T / g = 6
        S / g + T / g - 1 = 4 tiles a period; starts are multiples of 1, every width too
        row-major strides of the source shards are multiples of 2, 1
        Each tile has one holder, which sends it.
        No device receives over 24 bytes or sends over 24, the least possible.
        All devices together receive 104.
        """).split("\n"):
        assert line in [given.strip() for given in text.split("\n")], line


def test_tile_ranges_of_the_derivation_are_those_of_the_tiles() -> None:
    """The printed closed forms, evaluated for every pair of devices, give the transfers."""
    reshard = Reshard((7, 10), "int8", XY.sharding('[{"x"}, {"y"}]'), XY.sharding('[{"y"}, {"x"}]'))
    text = derivation(reshard).replace("floordiv", "//")
    ranges = dict(re.findall(r"^ +([ijkluv]) in \[(.*)\)$", text, flags=re.MULTILINE))
    assert sorted(ranges) == ["i", "j", "k", "l", "u", "v"]
    expected = {
        (s, r): (tensor, source, target) for s, r, tensor, source, target in _rows(plan(reshard))
    }
    found = {}
    for sender, receiver in itertools.product(range(6), range(6)):
        (m, n), (p, q) = divmod(sender, 3), divmod(receiver, 3)
        scope = {"m": m, "n": n, "p": p, "q": q, "max": max, "min": min}
        boxes = {name: list(eval(f"({form})", dict(scope))) for name, form in ranges.items()}
        if all(low < high for low, high in boxes.values()):
            found[sender, receiver] = tuple([boxes[a], boxes[b]] for a, b in ("ij", "kl", "uv"))
    assert found == expected


def _rows(planned: Plan) -> list[tuple[int, int, list, list, list]]:
    moves = planned.transfers()
    columns = (moves.sender, moves.receiver, moves.tensor, moves.source, moves.target)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_grain_is_the_divisor_that_the_algebra_proves() -> None:
    for extent, s, t in itertools.product((24, 36, 50), (2, 3, 4), (2, 3, 6)):
        mesh = Mesh({"x": s, "y": t})
        reshard = Reshard((extent,), "int8", mesh.sharding('[{"x"}]'), mesh.sharding('[{"y"}]'))
        (tiles,) = plan(reshard).exchange.dims
        start = Maximum(Index("a", s) * tiles.source.size, Index("b", t) * tiles.target.size)
        assert divisor(start) == tiles.grain
        assert all(low % tiles.grain == 0 for low in tiles.pairs.low.tolist())


def test_derivation_states_device_ids_and_meshes() -> None:
    one, other = Mesh({"x": 2}, [5, 3]), Mesh({"z": 3}, [7, 8, 9])
    text = derivation(Reshard((6,), "int8", one.sharding('[{"x"}]'), other.sharding('[{"z"}]')))
    assert "source d(m) is device_ids[m] of [5, 3]" in text
    assert "target d(p) is device p + 7" in text
    assert "d(p)[u] -> t[p * (K ceildiv P) + u]" in text
    assert "(m * (K ceildiv M) + k) floordiv (K ceildiv P)" in text


def test_derivation_of_two_cuts_without_a_common_refinement() -> None:
    mesh = Mesh({"x": 6})
    text = derivation(
        Reshard((6,), "int8", mesh.sharding('[{"x":(1)2}]'), mesh.sharding('[{"x":(1)3}]'))
    )
    assert "M = Ma * Mb = 2 * 3 = 6" in text
    assert "P = Pa * Pb = 3 * 2 = 6" in text


@pytest.mark.parametrize("rank", range(9))
def test_every_rank_is_shown(rank: int) -> None:
    mesh = Mesh({"x": 2, "y": 2})
    dims = [DimSharding() for _ in range(rank)]
    before, after = list(dims), list(dims)
    if rank:
        before[0] = DimSharding((AxisRef("x"), AxisRef("y")))
        after[-1] = DimSharding((AxisRef("y"),))
    reshard = Reshard(
        tuple(range(2, 2 + rank)),
        "int8",
        Sharding(mesh, tuple(before)),
        Sharding(mesh, tuple(after)),
    )
    planned = plan(reshard)
    assert "proved for all sizes" in derivation(reshard)
    assert f"by the identities, {6 * rank + 2} steps" in derivation(reshard)
    assert "Cut pattern" in pictures(planned)
    ElementTree.fromstring(svg(planned))


def test_tile_table() -> None:
    lines = tile_table(plan(TRANSPOSE)).split("\n")
    assert lines[0].split("  ")[0] == "from"
    assert lines[2] == ("   0   1  [2, 3) x [0, 2)  [2, 3) x [0, 2)  [0, 1) x [0, 2)      8")
    assert lines[1].endswith(" local")
    assert len(lines) == 17


def test_tile_table_is_limited_with_a_count() -> None:
    assert tile_table(plan(TRANSPOSE), limit=3).split("\n")[4:] == [
        "… and 13 more of 16 transfers."
    ]
    assert len(tile_table(plan(TRANSPOSE), limit=None).split("\n")) == 17


def big(devices: int = 1024) -> Plan:
    mesh = Mesh({"x": devices // 32, "y": 32})
    return plan(
        Reshard(
            (100_003, 512),
            "int8",
            mesh.sharding('[{"x", "y"}, {}]'),
            mesh.sharding('[{"y"}, {"x"}]'),
        )
    )


def test_many_devices_are_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = big(65536)

    def refuse(self: DirectPlan) -> None:
        raise AssertionError("transfers were enumerated")

    monkeypatch.setattr(DirectPlan, "transfers", refuse)
    assert tile_table(planned) == (
        "The transfers of 65,536 devices are stated in closed form; "
        "`shardwright plan … --transfers` lists them."
    )
    page = review_page(planned, "big", "shardwright emit …")
    assert len(page) < 3_000
    assert 'The first 4 of 2048 devices along "x".' in pictures(planned)
    assert "bands of dimension 0." in svg(planned)


def test_picture_of_ranges() -> None:
    planned = plan(Reshard((50, 12), "int8", TRANSPOSE.source, TRANSPOSE.target))
    assert exactly("""
        mesh axis y
        ----------->
        +----------+----------+----------+ mesh axis x |
        | [0, 25)  | [0, 25)  | [0, 25)  |             |
        | [0, 4)   | [4, 8)   | [8, 12)  |             |
        +----------+----------+----------+             |
        | [25, 50) | [25, 50) | [25, 50) |             |
        | [0, 4)   | [4, 8)   | [8, 12)  |             |
        +----------+----------+----------+             ↓
        """) in pictures(planned)


def test_picture_of_the_cuts() -> None:
    assert exactly("""
        Cut pattern: in each tile, the devices that hold it before -> after

        tensor dimension 1
        ------------------>
          0                 2        3        4                 6 tensor dimension 0 |
        0 +-----------------+--------+--------+-----------------+                    |
          |                 |        |        |                 |                    |
          |      0 -> 0     | 1 -> 0 | 1 -> 3 |      2 -> 3     |                    |
          |                 |        |        |                 |                    |
        2 +-----------------+--------+--------+-----------------+                    |
          |      0 -> 1     | 1 -> 1 | 1 -> 4 |      2 -> 4     |                    |
        3 +-----------------+--------+--------+-----------------+                    |
          |      3 -> 1     | 4 -> 1 | 4 -> 4 |      5 -> 4     |                    |
        4 +-----------------+--------+--------+-----------------+                    |
          |                 |        |        |                 |                    |
          |      3 -> 2     | 4 -> 2 | 4 -> 5 |      5 -> 5     |                    |
          |                 |        |        |                 |                    |
        6 +-----------------+--------+--------+-----------------+                    ↓
        """) in pictures(plan(TRANSPOSE))


def test_picture_of_empty_shards_and_other_device_orders() -> None:
    mesh = Mesh({"x": 4}, [9, 4, 6, 1])
    planned = plan(Reshard((5,), "int8", mesh.sharding('[{"x"}]'), mesh.sharding("[{}]")))
    text = pictures(planned)
    assert "| 9 | 4 | 6 | 1 |" in text
    assert "| 1 2 | 3 4 | 5   | -   |" in text
    assert "9 -> 1,4,6,9" in text


def test_pictures_fit_a_page() -> None:
    for devices in (1024, 65536):
        assert max(map(len, pictures(big(devices)).split("\n"))) <= 140


def test_slices_of_a_tensor_of_more_dimensions() -> None:
    mesh = Mesh({"x": 2, "y": 2, "z": 2})
    reshard = Reshard(
        (4, 6, 8), "int8", mesh.sharding('[{"x"}, {"y"}, {"z"}]'), mesh.sharding("[{}, {}, {}]")
    )
    picture = CutPicture.of(plan(reshard).exchange, 16)
    assert picture.notes() == ("A slice: dimension 2 at [0, 4).",)
    assert "A slice: dimension 2 at [0, 4)." in svg(plan(reshard))


@pytest.mark.parametrize(
    ("sharding", "index", "expected"),
    [
        ('[{"x"}]', (0,), "0-2"),
        ('[{"y"}]', (1,), "1,4"),
        ('[{"y", "x"}]', (1,), "3"),
        ("[{}]", (0,), "0-5"),
    ],
)
def test_holders(sharding: str, index: tuple[int, ...], expected: str) -> None:
    assert holders_text(Layout.of(XY.sharding(sharding), (6,), "flat"), index) == expected


NAME = "{http://www.w3.org/2000/svg}"


def places(element: ElementTree.Element) -> tuple[float, float]:
    return float(element.get("x", 0)), float(element.get("y", 0))


def sizes(element: ElementTree.Element) -> tuple[float, float]:
    return float(element.get("width", 0)), float(element.get("height", 0))


def labels(tree: ElementTree.Element, pattern: str) -> dict[str, tuple[float, float]]:
    """Where each text stands that a pattern matches."""
    return {
        element.text: places(element)
        for element in tree.iter()
        if element.get("x") and re.fullmatch(pattern, element.text or "")
    }


def test_svg_shows_every_tile_in_the_colour_of_its_source() -> None:
    tree = ElementTree.fromstring(svg(plan(TRANSPOSE)))
    assert tree.tag == f"{NAME}svg"
    moves = plan(TRANSPOSE).transfers()
    tiles = labels(tree, r"\d → \d")
    assert sorted(tiles) == sorted(
        f"{s} → {r}" for s, r in zip(moves.sender.tolist(), moves.receiver.tolist(), strict=True)
    )
    (group,) = (each for each in tree.iter(f"{NAME}g") if each.get("id") == "source")
    boxes = list(group)
    assert len({box.get("fill") for box in boxes}) == len(boxes) == 6
    drawn = [each for each in tree.iter(f"{NAME}use") if each.get("href") == "#source"]
    left, top = places(drawn[-1])
    for tile, (x, y) in tiles.items():
        (held,) = (
            number
            for number, box in enumerate(boxes)
            if 0 < x - left - places(box)[0] < sizes(box)[0]
            and 0 < y - top - places(box)[1] < sizes(box)[1]
        )
        assert tile.startswith(f"{held} ")


def test_svg_has_an_edge_wherever_target_shards_meet() -> None:
    tree = ElementTree.fromstring(svg(plan(TRANSPOSE)))
    (shape,) = (each for each in tree.iter(f"{NAME}path") if each.get("id") == "target")
    width, height = sizes(next(tree.iter(f"{NAME}rect")))
    assert (width, height) == (100, 80)  # of 3 x 2 source shards
    assert shape.get("d") == "M0 0H300V160H0Z M0 53.3H300 M0 106.7H300 M150 0V160"
    fills = [each.get("fill") for each in tree.iter(f"{NAME}use") if each.get("href") == "#target"]
    assert fills == ["#f2f3f5", "none"]


def test_svg_lies_within_its_page() -> None:
    for planned in (plan(TRANSPOSE), big()):
        tree = ElementTree.fromstring(svg(planned))
        right, bottom = sizes(tree)
        assert tree.get("viewBox") == f"0 0 {tree.get('width')} {tree.get('height')}"
        (group,) = tree.iter(f"{NAME}g")
        drawn = [(*places(box), *sizes(box)) for box in group]
        shapes = max(x + width for x, _, width, _ in drawn), max(y + h for _, y, _, h in drawn)
        for element in tree.iter():
            x, y = places(element)
            wide, high = shapes if element.tag == f"{NAME}use" else (0.0, 0.0)
            assert 0 <= x <= x + wide <= right
            assert 0 <= y <= y + high <= bottom


def test_review_page() -> None:
    page = review_page(plan(TRANSPOSE), "transpose", "shardwright emit --mesh x=2,y=3")
    assert page.startswith(
        exactly("""
            # transpose

            Reshards float32[6, 6] over 6 devices.

            ```text
            Source: [{"x"}, {"y"}] on <["x"=2, "y"=3]>, shards of 3 x 2.
                d1(x, y)[k0, k1] -> t[x * 3 + k0, y * 2 + k1]
            Target: [{"y"}, {"x"}] on <["x"=2, "y"=3]>, shards of 2 x 3.
                d2(x, y)[k0, k1] -> t[y * 2 + k0, x * 3 + k1]
            Tiles are the intersections of source and target shards. Along dimension
                0: shards of 3 and 2; cuts are at multiples of 1 and repeat every 6
                1: shards of 2 and 3; cuts are at multiples of 1 and repeat every 6
            ```

            | bytes | moved | least possible | ratio |
            | --- | --- | --- | --- |
            | received by the busiest device | 24 | 24 | 1.000 |
            | received by all devices | 104 | 104 | 1.000 |
            | sent by the busiest device | 24 | 24 | 1.000 |

            ## Who sends what to whom

            | device | before | after | receives | bytes |
            | --- | --- | --- | --- | --- |
            | 0 | [0, 3) x [0, 2) | [0, 2) x [0, 3) | [0, 2) x [2, 3) from 1 | 8 |
            """)
    )
    headings = re.findall(r"^#+ (?!In the parent)(.*)$", page, flags=re.MULTILINE)
    assert headings == [
        "transpose",
        "Who sends what to whom",
        "Emit and check",
    ]
    assert "](reshard.svg)" in page
    emitted = "# In the parent folder:\nshardwright emit --mesh x=2,y=3\n"
    assert f"```sh\n{emitted}shardwright verify transpose  # " in page
    assert page.count("```") % 2 == 0


@pytest.mark.parametrize("strategy", ["direct", "basis"])
def test_a_page_notes_devices_that_take_no_part(strategy: str) -> None:
    noted = "6 of whose 8 devices take part"
    for topology, said in (("h100:8", True), ("h100:6", False), ("switch", False)):
        made = plan(TRANSPOSE, strategy, topology=topology)
        page = " ".join(review_page(made, "transpose", "make").split())
        assert (noted in page) == ("take part" in page) == said


def test_the_page_of_a_permutation_pairs_devices() -> None:
    mesh = Mesh({"x": 2, "y": 3})
    ends = mesh.sharding('[{"x", "y"}]'), mesh.sharding('[{"y", "x"}]')
    page = review_page(plan(Reshard((6,), "int8", *ends)), "swap", "shardwright emit …")
    assert (
        exactly("""
        A permutation: every shard goes whole to one device.

        device          0  1  2  3  4  5
        sends to        0  3  1  4  2  5
        receives from   0  2  4  1  3  5
        """)
        in page
    )
    assert "| device |" not in page


def test_the_page_gives_ranges_along_what_is_cut() -> None:
    """Of dimensions that neither side splits only that along which tiles are cut into pieces; of a
    tensor in partial sums none that tells these apart."""
    rows = Mesh({"x": 2, "y": 2}).sharding('[{"x"}, {}]'), Mesh({"z": 2}).sharding('[{"z"}, {}]')
    shared = plan(Reshard((2, 64), "int8", *rows))
    assert (shared.exchange.rule.pieces, shared.exchange.rule.cut) == (2, 1)
    assert "Ranges along" not in review_page(shared, "any", "shardwright emit …")
    mesh = Mesh({"x": 2, "y": 4})
    ends = '[{"x"}, {}], unreduced={"y"}', '[{}, {}], unreduced={"y"}'
    sums = plan(Reshard((6, 5), "float32", *map(mesh.sharding, ends)))
    page = review_page(sums, "any", "shardwright emit …")
    assert "Ranges along dimension 0." in page
    assert "| 0 | [0, 3) | [0, 6) | [3, 6) from 4 | 60 |" in page
    assert "    d1(x, y)[k0, k1] -> t[x * 3 + k0, k1]\n" in page


def test_the_page_shows_some_of_many_devices_and_pieces() -> None:
    mesh = Mesh({"x": 24})
    page = review_page(
        plan(Reshard((24, 24), "int8", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]'))),
        "any",
        "shardwright emit …",
    )
    rows = re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)
    assert rows == [str(device) for device in range(16)]
    assert "[8, 9) x [0, 1) from 8, … and 15 more | 23 |" in page
    assert "… and 8 more of 24 devices." in page


@pytest.mark.slow
def test_the_same_text_whatever_the_hash_seed() -> None:
    code = (
        "import hashlib, shardwright as sw;"
        "from shardwright.codegen.show.review import review_page;"
        "m = sw.Mesh({'x': 4, 'y': 2});"
        "r = sw.Reshard((7, 9), 'int8', m.sharding('[{\"x\"}, {}]'),"
        ' m.sharding(\'[{"x":(1)2}, {"x":(2)2, "y"}]\'));'
        "p = sw.plan(r);"
        "t = review_page(p, 'a', 'c') + sw.svg(p);"
        "print(hashlib.sha256(t.encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_nested_tile_ranges() -> None:
    mesh = Mesh({"x": 2, "y": 2})
    sharding = mesh.sharding('[{"x", "y"}, {}]')
    text = derivation(Reshard((5, 3), "float32", sharding, sharding, source_split="nested"))
    assert "the split of dimension 0 is nested" in text
    assert "C_s2 = L_s1 ceildiv 2" in text
    # The first such line is the general one, in a, S, b, T.
    _, ends = re.findall(r"^ +i in \[max\((.*)\), min\((.*)\)\)$", text, flags=re.MULTILINE)
    lines = re.findall(r"^ +([oLC]_s\d) = (.*)$", text, flags=re.MULTILINE)
    source, target = (
        Layout.of(sharding, (5, 3), split).boxes()[:, 0].tolist() for split in ("nested", "flat")
    )
    for sender, receiver in itertools.product(range(4), range(4)):
        (m, n), (p, q) = divmod(sender, 2), divmod(receiver, 2)
        scope = {"m": m, "n": n, "p": p, "q": q, "max": max, "min": min}
        for name, form in lines:
            scope[name] = eval(re.sub(r"(\w+) ceildiv (\w+)", r"-(-\1 // \2)", form), scope)
        low, high = (
            eval(f"{f}({end})", scope) for f, end in zip(("max", "min"), ends, strict=True)
        )
        expected = (
            max(source[sender][0], target[receiver][0]),
            min(source[sender][1], target[receiver][1]),
        )
        assert (low, high) == expected


@st.composite
def reshards(draw: st.DrawFn) -> Reshard:
    """Reshards between two meshes of any orders and devices, without unreduced axes."""
    rank = draw(st.integers(0, 4))
    sides = [draw(shardings(draw(meshes(most_devices=24)), rank)) for _ in range(2)]
    source, target = (Sharding(side.mesh, side.dims, side.replicated) for side in sides)
    splits = [draw(st.sampled_from(["flat", "nested"])) for _ in range(2)]
    shape = tuple(draw(st.integers(1, 12)) for _ in range(rank))
    return Reshard(shape, "bfloat16", source, target, *splits)


@given(reshards())
@settings(max_examples=60, deadline=None)
def test_every_reshard_is_shown_and_proved(reshard: Reshard) -> None:
    planned = plan(reshard)
    text = derivation(reshard)
    assert text.count("proved for all sizes") == 2
    assert "not proved" not in text
    assert all(
        len(line) <= 80 or line.startswith(("|", "    d")) or " " not in line.strip()
        for line in review_page(planned, "any", "shardwright emit …").splitlines()
    )
    ElementTree.fromstring(svg(planned))


def test_partial_sums_are_shown() -> None:
    mesh = Mesh({"x": 2, "y": 2})
    reshard = Reshard(
        (4,),
        "float32",
        mesh.sharding('[{"y"}], unreduced={"x"}'),
        mesh.sharding('[{}], unreduced={"x"}'),
    )
    text = derivation(reshard)
    assert "sum over m of d(m, n)[k] -> t[n * (K ceildiv N) + k]" in text
    assert "t[i] -> sum over m of d(m, *)[i]" in text
    assert "Of the unreduced axes, the devices of coordinate 0." in pictures(plan(reshard))


def test_a_sum_is_shown_as_one_exchange() -> None:
    """Every receiver gets all terms, of which the derivation says that they are added."""
    sides = XY.sharding('[{"x"}, {}], unreduced={"y"}'), XY.sharding("[{}, {}]")
    said = derivation(Reshard((4, 6), "float32", *sides))
    assert "sum over n of d(m, n)[k, l] -> t[" in said
    assert "Bytes received: " in said
