"""`shardwright plan --explain`: the cost terms of a plan, and the costs of the alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardwright.codegen.hardware.presets import name_of
from shardwright.codegen.hardware.topology import Torus
from shardwright.codegen.registry import NAMES
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from shardwright.codegen.moves.network.links import Network
    from shardwright.codegen.moves.xla import XlaCollectives
    from shardwright.codegen.operations.emit.verdict import Priced
    from shardwright.codegen.spec.description import Description
    from shardwright.ir.plan import Plan
    from shardwright.ir.reshard import Reshard

# XLA's plan adds one line of output. On larger meshes it takes too long to make.
ASKED_DEVICES = 64

TERMS = """\
A stage lasts as long as its busiest link: messages x latency + bytes / bandwidth. Copies in HBM
last as long as their bytes / its bandwidth. Stages run in sequence, but rounds of forwarding
overlap: the seconds of such a round are the time by which it delays the end. Collectives of a
platform's library are priced at their best: rings along the axes of the topology, or doubling. On
long rings, which bandwidth limits, a gather of B bytes takes B / (bidirectional bandwidth x axes),
a scatter that adds takes as long, an all-reduce twice as long, and an all-to-all a quarter as long,
for any number of devices."""


def asked_xla(reshard: Reshard) -> XlaCollectives | None:
    """Return the plan of XLA's own partitioner, or None if XLA cannot run here or the source mesh
    has more than ASKED_DEVICES devices."""
    from shardwright.codegen.moves.compare import xla_plan

    if reshard.source.mesh.size > ASKED_DEVICES:
        return None
    found = xla_plan(reshard)
    return None if isinstance(found, str) else found


def verdict_lines(plan: Plan, description: Description) -> tuple[str, ...]:
    """Return one line per backend: the predicted seconds of its module, compared with those of its
    peer."""
    from shardwright.codegen.moves.plan import network_of
    from shardwright.codegen.operations.emit.verdict import peer_of, verdict

    assert description.topology is not None
    network = network_of(plan.reshard, description.topology)
    peer, where = peer_of(plan, network, asked_xla(plan.reshard)), name_of(network.topology)
    return tuple(
        _whose(one, made, plan) + verdict(one, made, peer, where)
        for one, made in _modules(plan, description, network)
    )


def _whose(one: Priced, made: Plan, plan: Plan) -> str:
    """Return the words that introduce a line about a plan other than the printed one, or ""."""
    if made is plan:
        return ""
    return f"with --backends {one.backend}, {made.strategy} ({made.ops or 'no steps'}), "


def explained(plan: Plan, description: Description) -> Iterator[str | Table]:
    """Yield the stages of every module with their cost terms, and the cost of each alternative."""
    from shardwright.codegen.moves.plan import default_network, network_of

    reshard, topology = plan.reshard, description.topology
    network = network_of(reshard, topology) if topology else default_network(reshard)
    yield f"{TERMS}\non {network.topology}\n"
    for one, _ in _modules(plan, description, network):
        yield _stages(one)
    yield _alternatives(reshard, description, network)
    collectives = _collectives(reshard, network)
    if collectives is not None:
        yield collectives


def _modules(
    plan: Plan, description: Description, network: Network
) -> Iterator[tuple[Priced, Plan]]:
    """Yield the costs of each backend with the plan that is priced. If the strategy is `auto`, a
    backend that the description does not name gets its own best plan."""
    from shardwright.codegen.operations.emit.choice import plan as plan_of
    from shardwright.codegen.operations.emit.verdict import backends_on, priced

    for name in backends_on(network.topology, NAMES):
        made = plan
        if description.strategy == "auto" and name not in description.backends:
            limit, topology = description.memory_limit, description.topology
            own = plan_of(plan.reshard, topology=topology, memory_limit=limit, backends=(name,))
            made = plan if own == plan else own
        yield from ((one, made) for one in priced(made, (name,), network))


def _stages(one: Priced) -> Table:
    from rich.table import Table

    cost = one.cost
    title = f"{one.backend}: {cost.said} seconds, {cost.wire_bytes:,} bytes on the wire"
    table = Table("stage", title=title)
    for heading in ("seconds", "busiest link: bytes", "messages", "HBM bytes"):
        table.add_column(heading, justify="right")
    for stage in cost.stages:
        link = "library" if stage.link_bytes is None else f"{stage.link_bytes:,.0f}"
        messages = "" if stage.messages is None else f"{stage.messages:g}"
        copied = f"{stage.copied:,.0f}" if stage.copied else ""
        table.add_row(stage.what, f"{stage.seconds:.3g}", link, messages, copied)
    return table


def _collectives(reshard: Reshard, network: Network) -> Table | None:
    from rich.table import Table

    from shardwright.codegen.moves.network.ring_table import ring_costs

    if not isinstance(network.topology, Torus):
        return None
    costs = ring_costs(network.topology, reshard.nbytes)
    title = f"Collectives of {reshard.nbytes:,} bytes along axes of {network.topology.dims}"
    table = Table("collective", "axes", title=title)
    for heading in ("on long rings", "here", "of no bytes", "bound by"):
        table.add_column(heading, justify="right")
    for cost in costs:
        seconds = (f"{each:.3g}" for each in (cost.table, cost.model, cost.latency))
        table.add_row(cost.op, str(cost.axes), *seconds, cost.bound_by)
    return table if costs else None


def _alternatives(reshard: Reshard, description: Description, network: Network) -> Table:
    from rich.table import Table

    table = Table("alternative", "steps", "seconds", "as emitted", title="What else there is")
    for row in _rows(reshard, description.memory_limit, network):
        table.add_row(*row)
    return table


def _rows(
    reshard: Reshard, limit: int | None, network: Network
) -> Iterator[tuple[str, str, str, str]]:
    from shardwright.codegen.moves.plan import STRATEGIES, plan
    from shardwright.codegen.moves.xla_cost import seconds_of_xla
    from shardwright.codegen.operations.emit.verdict import priced
    from shardwright.ir.exchange import ids_of

    for strategy in STRATEGIES[1:]:
        try:
            made = plan(reshard, strategy, topology=network.topology, memory_limit=limit)
        except InputError as error:
            yield strategy, error.rule, "", ""
            continue
        assert made.prediction is not None
        each = (f"{o.backend} {o.cost.said}" for o in priced(made, NAMES, network))
        steps = zip(made.listed(), made.prediction.step_seconds, strict=True)
        said = ", ".join(f"{step.op} {seconds:.3g}" for step, seconds in steps)
        yield strategy, said or "none", f"{made.prediction.seconds:.3g}", ", ".join(each)
    found = asked_xla(reshard)
    if found is None:
        yield "XLA", "not asked", "", ""
        return
    seconds = seconds_of_xla(found, network, ids_of(reshard.source.mesh))
    yield "XLA", found.steps, f"{seconds:.3g}", ""
