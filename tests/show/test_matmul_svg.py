"""The picture of a matmul: who multiplies what when."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import shardwright as sw
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.show.matmul_svg import COLOURS, LENGTHS, matmul_svg

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(matmul: sw.Matmul, loop: str = "never") -> ElementTree.Element:
    text = matmul_svg(plan_matmul(matmul, loop=loop, listed=0))
    assert text is not None
    return ElementTree.fromstring(text)


def areas(picture: ElementTree.Element, colour: str) -> list[float]:
    """The part of a whole tensor that each device's rectangle is."""
    rects = [rect for rect in picture.iter(f"{SPACE}rect") if rect.get("fill") == colour]
    whole = LENGTHS["i"] * LENGTHS["k"]
    return [float(rect.get("width", 0)) * float(rect.get("height", 0)) / whole for rect in rects]


def texts(picture: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in picture.iter() if (each.text or "").strip()]


def test_each_device_has_its_part_of_each() -> None:
    made = sw.Matmul(
        "bf16", ((8, 4), "P('x')"), ((4, 6), "P(None, 'y')"), "P('x', 'y')", mesh="x=4,y=2"
    )
    picture = drawn(made)
    parts = {side: areas(picture, colour) for side, colour in COLOURS.items()}
    assert parts == {"lhs": [1 / 4] * 8, "rhs": [1 / 2] * 8, "out": [1 / 8] * 8}
    assert [text for text in texts(picture) if text.startswith("device")] == [
        f"device {number}" for number in range(8)
    ]


def test_turns_of_a_loop_stand_at_their_parts() -> None:
    made = sw.Matmul("float32", ((8, 8), "P('i')"), ((8, 4), "P('i')"), "P('i')", mesh="i=4")
    picture = drawn(made, "one")
    turns = [text for text in texts(picture) if text.isdigit()]
    assert turns[:4] == list("0321")
    assert sorted(turns) == sorted("0123" * 4)
    spans = [s for s in picture.iter(f"{SPACE}tspan") if s.text in set("0123")]
    heights = [float(s.get("y", 0)) for s in spans]
    # Device 0 multiplies parts 0, 3, 2, 1 of B, which stand below one another.
    assert heights[:4] == sorted(heights[:4])


def test_numbers_of_many_turns_do_not_touch() -> None:
    """Sixteen parts of A in 76 pixels, along rows and along columns."""
    columns, rows = "P(None, 'i')", "P('i')"
    for lhs, rhs, out in ((rows, columns, columns), (rows, rows, rows)):
        made = sw.Matmul("f32", ((64, 64), lhs), ((64, 64), rhs), out, mesh="i=8")
        picture = drawn(made, "both")
        spans = [s for s in picture.iter(f"{SPACE}tspan") if (s.text or "").isdigit()]
        at = [(float(s.get("x", 0)), float(s.get("y", 0))) for s in spans]
        assert len(at) == 8 * 16
        for number, (x, y) in enumerate(at):
            near = [(a, b) for a, b in at[:number] if abs(a - x) < 6 and abs(b - y) < 9]
            assert not near, (x, y, near)


def test_the_legend_has_the_shapes() -> None:
    made = sw.Matmul("float32", ((8, 8), "P('i')"), ((8, 4), "P('i')"), "P('i')", mesh="i=4")
    assert (
        "Coloured: a device's parts, A [2, 8], B [8, 4], C [2, 4] "
        '(i over "i"). Numbers: the turn in which it has a part of B.'
    ) in texts(drawn(made, "one"))


def test_many_devices_have_no_picture() -> None:
    made = sw.Matmul("bf16", ((32, 4), "P('x')"), ((4, 6), "P()"), "P('x')", mesh="x=32")
    assert matmul_svg(plan_matmul(made, listed=0)) is None
