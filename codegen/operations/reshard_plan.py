"""The plan of a reshard in words and tables, as `shardwright plan` and `show` print it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_FLOOR, Context
from typing import TYPE_CHECKING

from shardwright.codegen.hardware.presets import idle_text, topology_of
from shardwright.codegen.moves import plan as plan_of
from shardwright.codegen.moves.compare import compare
from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.moves.network.rings import Rings
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.relabel import relabel
from shardwright.codegen.moves.rounds import schedule
from shardwright.codegen.operations.answers import PlanAsked, Printed
from shardwright.codegen.operations.emit.choice import executing, planned
from shardwright.codegen.operations.emit.ways import plan_json, reduced_by, rings_by
from shardwright.codegen.operations.explain import explained, verdict_lines
from shardwright.codegen.show import derivation, pictures, summary, svg, tile_table
from shardwright.codegen.show.rings import rings_svg, rings_text
from shardwright.codegen.show.tables import ratio
from shardwright.codegen.spec.description import Description
from shardwright.codegen.text.docstring import title
from shardwright.ir.plan import DirectPlan, Plan, Prediction, SteppedPlan, direct_of

if TYPE_CHECKING:
    from rich.table import Table

# With more devices, the text output lists tiles only on request.
LISTED_DEVICES = 16
# With more devices, rounds are omitted, because ordering all transfers takes too long.
SCHEDULED_DEVICES = 512
# A plan within this fraction of the lower bound is reported as optimal.
PROVEN = 1e-4


def plan_printed(said: Description, asked: PlanAsked) -> Iterator[Printed]:
    """Yield the plan of a reshard, or a comparison of plans."""
    if asked.relabel:
        said, line = _relabelled(said)
        yield "" if asked.json else line
    if asked.compare:
        yield from _comparison(said)
        return
    made = planned(said)
    if asked.json:
        yield plan_json(made, said.backends, True if asked.transfers else None)
        return
    yield from _plan(made, asked.transfers)
    for backend, way in reduced_by(made, said.backends).items():
        yield f"{backend} reduces terms with {way}\n"
    if said.topology is not None or asked.explain:
        for line in verdict_lines(made, said) if said.topology is not None else ():
            yield f"{line}\n"
        if asked.explain:
            yield from explained(made, said)


def _relabelled(said: Description) -> tuple[Description, str]:
    """Relabel the target's devices in the order that moves the fewest bytes. Return the new
    description and a line on the bytes before and after. If no order is better, the description is
    unchanged."""
    found = relabel(said.reshard())
    before, after = found.bytes_before, found.bytes_after
    mesh = str(found.reshard.target.mesh)
    line = f"relabelled: {after:,} bytes move instead of {before:,}, by --target-mesh\n  '{mesh}'\n"
    if after == before:
        line = f"not relabelled: {before:,} bytes move in any order of the target's devices\n"
        return said, line
    return replace(said, target_mesh=mesh), line


def _comparison(said: Description) -> Iterator[Printed]:
    from rich.table import Table

    table = Table("plan")
    for heading in ("busiest device", "in total", "peak memory", "seconds", "steps"):
        table.add_column(heading, justify="left" if heading == "steps" else "right")
    rows = compare(said.reshard(), said.topology, said.memory_limit)
    for row in rows:
        seconds = "" if row.seconds is None else f"{row.seconds:.3g}"
        figures = (row.received_max, row.received_total, row.peak)
        shown = ("" if figure is None else f"{figure:,}" for figure in figures)
        table.add_row(row.name, *shown, seconds, row.steps)
    yield table
    yield f"bytes received; seconds on {rows[0].topology}\n"


def _plan(made: Plan, transfers: bool) -> Iterator[Printed]:
    reshard = made.reshard
    shape = "x".join(map(str, reshard.shape)) or "()"
    yield f"{reshard.dtype} {shape}: {reshard.source} on {reshard.source.mesh}\n"
    yield f"-> {reshard.target} on {reshard.target.mesh}\n"
    yield f"strategy {made.strategy}, steps: {made.ops or 'none'}\n"
    if isinstance(made, SteppedPlan):
        names = ", ".join(executing(made.strategy, made.reshard))
        others = "; other backends take direct plans" if made.strategy == "basis" else ""
        yield f"(emitted by {names}{others})\n"
        yield _steps_table(made)
    if made.prediction is not None:
        if isinstance(made, DirectPlan):
            yield "links alone, all transfers at once: "
        yield _prediction(made.prediction, made.devices)
        if isinstance(made, DirectPlan) and made.devices <= SCHEDULED_DEVICES:
            yield _rounds(made, made.prediction.topology)
    yield _bytes_table(made)
    if isinstance(made, SteppedPlan):
        return
    if transfers:
        yield f"{tile_table(made, limit=None)}\n"
    elif made.devices <= LISTED_DEVICES:
        yield f"{tile_table(made)}\n"


def _steps_table(made: SteppedPlan) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("step", "axes", "after")
    table.add_column("seconds", justify="right")
    seconds = (*made.prediction.step_seconds, 0.0)
    for step in made.to_dict(transfers=False)["steps"]:
        after = step["after"] if isinstance(step["after"], str) else step["after"]["sharding"]
        cost = f"{seconds[table.row_count]:.3g}"
        table.add_row(step["op"], ", ".join(step["axes"]), escape(after), cost)
    return table


def _prediction(prediction: Prediction, devices: int) -> str:
    """Return one or two lines with the predicted seconds and bytes, and with the reason if the peak
    exceeds the larger shard. `devices`: the number of devices of the plan."""
    topology = prediction.topology
    said = f"{prediction.seconds:.3g} seconds on {topology}"
    said += idle_text(topology_of(topology), devices)
    least = prediction.least_seconds
    if least is not None and least < (1 - PROVEN) * prediction.seconds:
        said += f"; at least {_rounded_down(least)} by any steps of the basis"
    said += f"; at most {prediction.peak_bytes:,} bytes per device\n"
    return said + (f"more than the larger shard: {prediction.why}\n" if prediction.why else "")


def _rounded_down(seconds: float) -> str:
    """Round a bound down to three digits, so that it remains a bound."""
    down = Context(prec=3, rounding=ROUND_FLOOR).create_decimal_from_float(seconds)
    return f"{float(down):.3g}"


def _rounds(plan: DirectPlan, topology: str) -> str:
    made = schedule(plan.transfers(), network_of(plan.reshard, topology))
    if not made.count:
        return ""
    rounds = "1 round" if made.count == 1 else f"{made.count} rounds"
    return f"{rounds} by {made.kind}; the busiest device takes part in {made.least}\n"


def _bytes_table(plan: Plan) -> Table:
    from rich.table import Table

    traffic = plan.traffic
    table = Table("bytes")
    for heading in ("moved", "bound", "moved / bound"):
        table.add_column(heading, justify="right")
    for what, moved, bound in (
        ("received by the busiest device", traffic.received_max, traffic.bound_received_max),
        ("received in total", traffic.received_total, traffic.bound_received_total),
        ("sent by the busiest device", traffic.sent_max, traffic.bound_sent_max),
    ):
        table.add_row(what, f"{moved:,}", f"{bound:,}", ratio(moved, bound))
    return table


def shown(said: Description) -> str:
    """Return the derivation, the tiles and their pictures."""
    made = _direct(said)
    reshard = made.reshard
    texts = [summary(made), derivation(reshard), tile_table(made), pictures(made)]
    return "\n\n".join((*texts, *map(rings_text, _rings(said)))) + "\n"


def picture(said: Description) -> str:
    """Return an SVG of the rings if modules reduce along rings, otherwise of the tiles."""
    made = _direct(said)
    drawn = (rings_svg(rings, title(made)) for rings in _rings(said))
    return next((each for each in drawn if each), None) or svg(made)


def _rings(said: Description) -> tuple[Rings, ...]:
    if said.topology is None or not said.reshard().adds:
        return ()
    return tuple(rings_by(planned(said), said.backends).values())


def _direct(said: Description) -> DirectPlan:
    reshard = said.reshard()
    if reshard.adds and said.strategy != "basis":
        return plan_direct(reshard)
    made = plan_of(
        reshard,
        said.strategy,
        topology=said.topology,
        memory_limit=said.memory_limit,
        among=("direct",),
    )
    return direct_of(made)
