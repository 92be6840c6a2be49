"""Describe a matmul's plan: its case in words, its candidates, and the product of each device in
each turn."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.hardware.presets import idle_text, topology_of
from shardwright.codegen.text.docstring import TABLE_DEVICES, box_text
from shardwright.ir.layout import Layout, read_digits
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import AxisCase, Loop, MatmulCandidate, MatmulPlan
from shardwright.ir.mesh import Digit
from shardwright.ir.multiplication import Multiplication

Row = tuple[str, ...]
Range = tuple[int, int]

ASKED = {
    0: "the sum may wait, because the product of a term is a term of the product",
    1: "nothing needs to move",
    2: "the other operand has all of that dimension, so one of the two moves",
    3: "products are partial sums that must be added",
    4: "a device could multiply only a diagonal block, so one operand moves first",
}
"""The communication that each case needs, in words."""

CANDIDATES: Row = (
    "before the product",
    "product",
    "after it",
    "flops",
    "bytes",
    "seconds",
    "bound by",
)


def case_line(case: AxisCase) -> str:
    """Return the case of an axis in words."""
    number = f"case {case.number}" if case.number else "a sum that is still missing"
    return f"Along {case.axis}, {number}: {case.why}; {ASKED[case.number]}."


def case_lines(plan: MatmulPlan) -> tuple[str, ...]:
    """Return the case of every axis used by an operand."""
    if not plan.cases:
        return ("Case 1: every device has all of both operands; nothing needs to move.",)
    return tuple(map(case_line, plan.cases))


def why_line(plan: MatmulPlan) -> str:
    """Return one line that states why the candidate was chosen."""
    what = "the fewest bytes into the busiest device of each movement, then the fewest flops"
    if plan.topology is not None:
        what = "the lowest predicted time"
    count = f"{plan.considered} candidates" if plan.considered > 1 else "one candidate"
    text = f"Chosen from {count} for {what}.{_same_line(plan)}"
    cost, loop = plan.chosen.cost, plan.chosen.loop
    if plan.topology is None or (loop is None and not plan.chosen.pulled):
        return text
    less = f"{1 - cost.seconds / cost.apart:.0%} less" if cost.seconds < cost.apart else "no less"
    apart = f"{less} than the {cost.apart:.3g} s of moving first and then multiplying"
    how = "Multiplying while parts travel round rings"
    how = how if loop is not None else "A kernel that exchanges parts meanwhile"
    return f"{text} {how} takes {cost.seconds:.3g} s, {apart}."


def _same_line(plan: MatmulPlan) -> str:
    """Return a sentence about the table row with the same product as the plan, but with or
    without a kernel that exchanges parts; "" if there is none."""
    mine = plan.chosen
    same = [each for each in plan.others if each.multiplication == mine.multiplication]
    if not same:
        return ""
    row = " One row below has the same product"
    if not same[0].pulled:
        return f"{row} without the kernel that exchanges parts."
    why = ""
    if not plan.may_pull:
        why = "not all backends have it" if plan.asked == "auto" else f'of loop="{plan.asked}"'
        why = f", which is no candidate because {why}"
    return f"{row} with a kernel that exchanges parts{why}."


def instead_line(plan: MatmulPlan) -> str:
    """State which operand moves and which stays, with the cost of moving the other operand
    instead; "" unless exactly one operand moves and the candidate that moves the other is
    listed."""
    lhs, rhs, _ = plan.chosen.cost.received
    if bool(lhs) == bool(rhs):
        return ""
    moved, stays = (0, 1) if lhs else (1, 0)
    received = ((each, each.cost.received) for each in plan.others)
    other = next((each for each, got in received if got[stays] and not got[moved]), None)
    if other is None:
        return ""
    mine, its = (_takes(plan, each) for each in (plan.chosen, other))
    return (
        f"{SIDES[moved]} moves and {SIDES[stays]} stays: {mine} in total. "
        f"If {SIDES[stays]} moved instead, the total would be {its}."
    )


def _takes(plan: MatmulPlan, candidate: MatmulCandidate) -> str:
    cost = candidate.cost
    return (
        f"{cost.received_max:,} bytes" if plan.topology is None else f"{cost.seconds:.3g} seconds"
    )


def candidate_row(candidate: MatmulCandidate) -> Row:
    """Return the table row of a candidate: moves before the product, product, moves after, cost."""
    cost = candidate.cost
    before = [_moves(candidate, side) for side in ("lhs", "rhs")]
    loop = "" if candidate.loop is None else f", {_loop_words(candidate.loop)}"
    loop += ", while a kernel exchanges parts" * candidate.pulled
    return (
        "; ".join(each for each in before if each) or "nothing",
        product_words(candidate.multiplication) + loop,
        _moves(candidate, "out") or "nothing",
        f"{cost.flops:,}",
        f"{cost.received_max:,}",
        f"{cost.seconds:.3g}",
        cost.limit,
    )


def candidate_rows(plan: MatmulPlan) -> tuple[Row, ...]:
    """Return the chosen candidate, then the other candidates."""
    return tuple(map(candidate_row, (plan.chosen, *plan.others)))


def _moves(candidate: MatmulCandidate, side: Side) -> str:
    ops = candidate.move(side).ops
    return f"{side}: {ops}" if ops else ""


def _loop_words(loop: Loop) -> str:
    ways = "one way" if loop.directions == 1 else "both ways"
    return f"while parts of {loop.side} go {ways} round rings of {loop.count}"


def product_words(product: Multiplication) -> str:
    """Return the axes that split each factor during the product."""
    matmul = product.matmul
    split = [
        f"{matmul.factor_name(factor)} over {', '.join(map(str, refs))}"
        for factor, refs in enumerate(product.axes)
        if refs
    ]
    kept = [f"{side} unreduced" for side, refs in zip(SIDES, product.terms, strict=False) if refs]
    return ", ".join([*split, *kept]) or "all of it on every device"


def picture_rows(plan: MatmulPlan) -> tuple[Row, ...]:
    """Return a table of the products, headings first. A device's row has its boxes of A, B and C
    and, with a loop, the range that it multiplies in each turn. Return no rows for too many
    devices."""
    matmul, product = plan.matmul, plan.chosen.multiplication
    mesh = matmul.mesh
    if mesh.size > TABLE_DEVICES:
        return ()
    boxes = {side: _boxes(product, side) for side in SIDES}
    partial = " (a term)" if product.shardings["out"].unreduced else ""
    headings: Row = ("device", "A", "B", f"C{partial}", *_turns(plan.chosen.loop))
    rows = [headings]
    for position, device in enumerate(mesh.device_ids):
        held = tuple(boxes[side][position] for side in SIDES)
        rows.append((str(device), *held, *_parts(plan, position)))
    return tuple(rows)


def _boxes(product: Multiplication, side: Side) -> list[str]:
    layout = Layout.of(product.shardings[side], product.matmul.shape(side), "flat")
    return [box_text(box) for box in layout.boxes()[:, layout.hidden :].tolist()]


def _turns(loop: Loop | None) -> Row:
    if loop is None or loop.count > TABLE_DEVICES // 2:
        return ()
    return tuple(f"turn {turn}" for turn in range(loop.count))


def _parts(plan: MatmulPlan, position: int) -> Iterator[str]:
    loop = plan.chosen.loop
    if loop is None or not _turns(loop):
        return
    name = plan.matmul.factor_name(loop.factor)
    for parts in turns_of(plan, position):
        yield f"{name} {', '.join(map(range_text, parts))}"


def range_text(part: Range) -> str:
    """Return a range as a string."""
    return "[{}, {})".format(*part)


def turns_of(plan: MatmulPlan, position: int) -> Iterator[tuple[Range, ...]]:
    """Yield for each turn of a loop the ranges of its factor that the device multiplies,
    relative to the start of the device's range: one range, or two if parts move both ways."""
    loop = plan.chosen.loop
    if loop is None:
        return
    places = loop.places
    me = places.index(int(read_digits(tuple(Digit(*pair) for pair in loop.digits), position)))
    size = plan.chosen.multiplication.local_extents[loop.factor] // loop.count
    for turn in range(loop.count):
        owners = [me - turn, me + turn] if loop.directions == 2 else [me - turn]
        if loop.side == "out":
            owners = [me - 1 - turn, me + 1 + turn] if loop.directions == 2 else [me + 1 + turn]
        starts = [places[owner % loop.count] * size for owner in owners]
        step = size // loop.directions
        yield tuple(
            (start + half * step, start + (half + 1) * step) for half, start in enumerate(starts)
        )


def matmul_words(matmul: Matmul) -> str:
    """Return one line: the operands and the number of devices."""
    lhs, rhs = (f"[{', '.join(map(str, matmul.shape(side)))}]" for side in ("lhs", "rhs"))
    return f"Multiplies {matmul.dtype}{lhs} by {rhs} over {matmul.mesh.size} devices"


def sharding_rows(matmul: Matmul) -> tuple[Row, ...]:
    """Return the shardings of operands and result, headings first."""
    rows: list[Row] = [("", "shape", "sharding", "shard")]
    for side in SIDES:
        shape, sharding = matmul.shape(side), matmul.sharding(side)
        local = sharding.local_shape(shape)
        rows.append((side, " x ".join(map(str, shape)), str(sharding), " x ".join(map(str, local))))
    return tuple(rows)


def columns(rows: tuple[Row, ...]) -> str:
    """Return rows as text with aligned columns."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def matmul_text(plan: MatmulPlan) -> str:
    """Return a plan as text, as `shardwright plan` and `show` print it."""
    matmul = plan.matmul
    where = f"on {matmul.mesh}"
    if plan.topology is not None:
        where += f", {plan.topology}{idle_text(topology_of(plan.topology), matmul.mesh.size)}"
    parts = (
        f"{matmul_words(matmul)}, {where}",
        columns(sharding_rows(matmul)),
        "\n".join(case_lines(plan)),
        "\n".join(each for each in (why_line(plan), instead_line(plan)) if each),
        columns((CANDIDATES, *candidate_rows(plan))),
        columns(picture_rows(plan)),
    )
    return "\n\n".join(part for part in parts if part)
