"""The XLA module: plain JAX, `shard_map` and `lax` collectives, on CPU, GPU and TPU.

A direct plan becomes the first of these that it is: a few collectives over axes
(`xla_collectives`), a permutation and an all-gather among groups (`xla_fetches`) or an all-to-all
among groups (`xla_groups`), whichever is fewer collectives, rounds of `lax.ppermute`
(`xla_rounds`); in place of several rounds one `lax.ragged_all_to_all` (`xla_ragged`), where the
plan is for a topology that has it. Each moves the plan's bytes, and less than 5% of padding beside
them. A round costs a pass over the memory of every device and a rendezvous, so that fewer are
better: where whole tiles from holders of the module's own choice take fewer than the plan's holders
and pieces do, the module has a table of them. A plan of several steps, and one of partial sums,
goes step by step (`xla_steps`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.jax_host import (
    HostText,
    axis_names,
    host_text,
    quoted_names,
    short_dims,
)
from shardwright.codegen.backends.jax_xla.boxes import MOST_PADDING, Boxes
from shardwright.codegen.backends.jax_xla.collectives import Collectives, Refs, collectives_of
from shardwright.codegen.backends.jax_xla.fetches import Fetches, fetches_of
from shardwright.codegen.backends.jax_xla.groups import Groups, groups_of
from shardwright.codegen.backends.jax_xla.ragged import Ragged, ragged_of
from shardwright.codegen.backends.jax_xla.rounds import Rounds, rounds_of
from shardwright.codegen.backends.jax_xla.steps.plan import (
    Steps,
    StepsText,
    is_stepwise,
    refuse_steps,
    steps_text,
)
from shardwright.codegen.emit.context import (
    ModuleText,
    as_vectors,
    check_ascii,
    check_extents,
    constant_lines,
    module_text,
)
from shardwright.codegen.emit.templates import render as render_template
from shardwright.codegen.hardware.presets import topology_of
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.plan import DirectPlan, Plan, direct_of

NAME = "jax_xla"
# Collectives over axes move up to so much padding, of the bytes that travel: rounds of boxes copy
# every one several times.
MOST_PADDING_AT_ONCE = 0.15
# A module goes through all transfers when it is traced.
MOST_TRANSFERS = 1 << 18
TESTED = "Tested with jax 0.10.2 on CPU devices."
RAGGED_TESTED = f"{TESTED[:-1]}, which go in rounds, and with ragged_all_to_all by its definition."
How = Collectives | Groups | Fetches | Rounds | Ragged | Steps


@dataclass(frozen=True)
class ProgramText:
    """What is done within `shard_map`, in the place of a kernel."""

    module: ModuleText
    host: HostText
    how: How
    target_short: tuple[int, ...]
    program_axes: str
    vector_target_shape: str
    wire_bytes: int
    table_lines: tuple[str, ...]
    round_lines: tuple[str, ...]
    is_kernel: bool = False
    settings: str = ""
    as_bits_interpreted: bool = False

    @property
    def as_bits(self) -> bool:
        """Whether elements move as integers of their width."""
        return self.host.as_bits

    @property
    def names_axes(self) -> bool:
        """Whether the program is among axes that its shardings alone do not name."""
        return isinstance(self.how, Steps)

    @property
    def exchange_template(self) -> str:
        """The template that prints `_exchange`."""
        return f"jax_xla/{type(self.how).__name__.lower()}.py.jinja"

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules of Python that a module needs."""
        counts = ("collections",) if self.is_rounds and not self.has_rounds_table else ()
        loads_backward = ("importlib.util",) if self.host.differentiable else ()
        goes_through = ("itertools",) if self.has_boxes or self.has_step_boxes else ()
        return (*counts, "contextlib", "functools", *loads_backward, *goes_through, "math", "os")

    @property
    def interpreters(self) -> tuple[str, ...]:
        """What a module registers its operation with."""
        derivative = self.host.differentiable or self.host.refuses_derivative
        return (*(("ad",) if derivative else ()), "batching", "mlir")

    @property
    def box_templates(self) -> tuple[str, ...]:
        """The templates of what goes through boxes, by tables or by index functions."""
        listed = ("jax_xla/listed.py.jinja",) if self.has_rounds_table else ()
        counted = ("jax_xla/boxes.py.jinja",) if self.has_boxes else ()
        placed = ("jax_xla/places.py.jinja",) if listed or counted else ()
        return (*listed, *counted, *placed)

    @property
    def has_boxes(self) -> bool:
        """Whether the module goes through the boxes of the plan's holders."""
        return bool(self.round_lines)

    @property
    def has_step_boxes(self) -> bool:
        """Whether the module goes through the boxes of some of its steps."""
        return isinstance(self.how, Steps) and self.how.boxes

    @property
    def picks_by_rank(self) -> bool:
        """Whether the module looks up rows of tables by rank."""
        match self.how:
            case Groups() | Rounds() | Ragged():
                return True
            case Fetches(is_whole=is_whole):
                return not is_whole or bool(self.target_short)
            case Collectives():
                return bool(self.target_short)
            case Steps(boxes=boxes):
                return boxes or bool(self.target_short)

    @property
    def is_rounds(self) -> bool:
        """Whether boxes travel in rounds."""
        return isinstance(self.how, Rounds)

    @property
    def has_rounds_table(self) -> bool:
        """Whether a table says who sends to whom in which round."""
        return isinstance(self.how, Rounds) and bool(self.how.table)

    @property
    def me(self) -> str:
        """Where the receiver stands in the source mesh."""
        return "receiver" if self.module.same_order else "me"

    @property
    def needs_of_sender(self) -> bool:
        """Whether rounds go by the number of a box among those of its sender."""
        return isinstance(self.how, Rounds) and self.how.kind in ("tiles", "turns")

    @property
    def needs_of_receiver(self) -> bool:
        """Whether rounds go by the number of a box among those of its receiver."""
        return isinstance(self.how, Rounds) and self.how.kind in ("shards", "turns")


@dataclass(frozen=True)
class XlaText:
    """Everything the template prints."""

    module: ModuleText
    host: HostText
    kernel: ProgramText


def refuse(plan: Plan) -> None:
    """Raise InputError for what this backend does not do."""
    if is_stepwise(plan):
        refuse_steps(plan)
        return
    check_extents(plan, NAME)
    check_ascii(plan.reshard)
    direct = direct_of(plan)
    refuse_wide(plan, as_vectors(direct.exchange), NAME)
    count = _transfers(direct.exchange)
    if count > MOST_TRANSFERS and direct.once(_collectives) is None:
        raise InputError(
            "jax_xla goes through all transfers when it is traced",
            argument="target",
            got=f"{count} transfers",
            expected=f"at most {MOST_TRANSFERS}, or a reshard by collectives over whole axes",
        )


def render(request: Request) -> str:
    """Return the text of a module."""
    return render_template("jax_xla/module.py.jinja", xla_text(request))


def how_of(plan: DirectPlan) -> How:
    """Return how the transfers of a direct plan travel."""
    collectives = plan.once(_collectives)
    if collectives is not None:
        return collectives
    exchange = as_vectors(plan.exchange)
    boxes = whole = Boxes.of(exchange)
    if exchange.rule.pieces > 1:
        whole = Boxes.of(replace(exchange, rule=HolderRule("turns")))
    rounds = rounds_of(exchange, boxes, whole)
    if rounds.count == 1 and rounds.join:
        return rounds  # one permutation, and in closed form
    among_groups = (fetches_of(exchange, whole), groups_of(exchange, boxes))
    tight = [how for how in among_groups if how and _is_tight(how.wire, _exact(plan))]
    if not tight and rounds.count > 1:
        return _ragged(plan, boxes) or rounds
    return min(tight, key=lambda how: how.collectives, default=rounds)


def _ragged(plan: DirectPlan, boxes: Boxes) -> Ragged | None:
    """Return the ragged all-to-all that a plan is, where it is for a topology that has one."""
    if plan.prediction is None or not plan.reshard.shape:
        return None
    row_bytes = topology_of(plan.prediction.topology).ragged
    found = ragged_of(plan.exchange, boxes, DTYPES[plan.reshard.dtype], row_bytes)
    return found if found is not None and _is_tight(found.wire, _exact(plan)) else None


def _collectives(plan: DirectPlan) -> Collectives | None:
    """Return the collectives over axes that move a plan's bytes, if there are any."""
    names = axis_names(plan.reshard.source)

    def named(refs: Refs) -> str:
        return quoted_names([names[ref] for ref in refs])

    found = collectives_of(plan.reshard, plan.exchange, named)
    if found is None or not _is_tight(found.wire, _exact(plan), MOST_PADDING_AT_ONCE):
        return None
    return found


def _exact(plan: Plan) -> tuple[int, int]:
    """Return elements that the busiest device receives, and all together."""
    size = DTYPES[plan.reshard.dtype]
    return plan.traffic.received_max // size, plan.traffic.received_total // size


def _is_tight(wire: tuple[int, int], exact: tuple[int, int], most: float = MOST_PADDING) -> bool:
    return all(w == e or w < (1 + most) * e for w, e in zip(wire, exact, strict=True))


def _transfers(exchange: Exchange) -> int:
    """Return at most how many transfers an exchange has."""
    tiles = math.prod(dim.pairs.source.size for dim in exchange.dims)
    return tiles * exchange.target.replicas * exchange.rule.pieces


def xla_text(request: Request) -> XlaText:
    """Return the template's context."""
    plan, command = request.plan, request.command
    if is_stepwise(plan):
        return _of_steps(steps_text(plan, command, TESTED))
    direct = direct_of(plan)
    exchange, how = as_vectors(direct.exchange), direct.once(how_of)
    tested = RAGGED_TESTED if isinstance(how, Ragged) else TESTED
    module = module_text(direct, command, PYTHON, tested, more=("", *how_facts(how, plan)))
    host = host_text(plan, module)
    program = ProgramText(
        module=module,
        host=host,
        how=how,
        target_short=() if _is_exact(how) else short_dims(exchange.target),
        program_axes=host.kernel_axes if exchange.same_order else '"device"',
        vector_target_shape=repr(exchange.target.local_shape),
        wire_bytes=how.wire[0] * DTYPES[plan.reshard.dtype],
        table_lines=_table_lines(how),
        round_lines=_round_lines(how, exchange),
    )
    return XlaText(module, host, program)


def _of_steps(text: StepsText) -> XlaText:
    """Return the context of a basis plan's module."""
    host = replace(text.host, pieces=0)
    program = ProgramText(
        module=text.module,
        host=host,
        how=text.how,
        target_short=text.target_short,
        program_axes=host.kernel_axes if text.module.same_order else '"device"',
        vector_target_shape="",
        wire_bytes=text.how.wire[0],
        table_lines=(),
        round_lines=(),
    )
    return XlaText(text.module, host, program)


def _is_exact(how: How) -> bool:
    """Return whether windows hold nothing but boxes, so that no padding of the result is
    written."""
    return isinstance(how, Ragged) or (isinstance(how, Rounds) and how.exact)


def _table_lines(how: How) -> tuple[str, ...]:
    """Return whom every rank sends to, as a comment and constants."""
    match how:
        case Rounds(table=table) if table:
            return (
                "# For each round the rank that every rank sends a whole tile to, -1 for none.",
                *_rows("ROUNDS", table),
            )
        case Fetches(senders=senders, groups=groups):
            return (
                "# The rank whose box every rank fetches, and who then gather one another's.",
                *constant_lines("FETCHES", [str(rank) for rank in senders]),
                *(_rows("GROUPS", groups) if how.members > 1 else ()),
                *_grid(how),
            )
        case _:
            return ()


def _grid(how: Fetches) -> tuple[str, ...]:
    """Return how many boxes of a group follow one another along each dimension, if along
    several."""
    if len(how.dimensions) < 2:
        return ()
    return (
        "# How many boxes of a group stand along each dimension; its ranks are row-major in these.",
        f"GRID = {how.join.grid!r}",
    )


def _rows(name: str, table: tuple[tuple[int, ...], ...]) -> list[str]:
    rows = [f"({', '.join(map(str, row))}{',' * (len(row) == 1)})" for row in table]
    return constant_lines(name, rows)


def _round_lines(how: How, exchange: Exchange) -> tuple[str, ...]:
    """Return what a module does with a box of the plan's holders: its round, who sends it, its
    place."""
    if isinstance(how, Collectives | Fetches) or (isinstance(how, Rounds) and how.table):
        return ()
    pieces = exchange.rule.pieces
    box, giver = "part" if pieces > 1 else "box", "sender"
    lines, number = [], []
    if not exchange.same_order:
        giver = "giver"
        lines.append("giver = ranks[SOURCE_IDS[sender]]")
    if isinstance(how, Rounds):
        lines.append(f"number = {_number_text(how, giver, pieces)}")
        number = [f"*_shape_of({box})"] * how.exact + ["number"]
    joined = ", ".join(number) + "," * (len(number) == 1)
    lines.append(f"yield ({joined}), {giver}, taker, *_placed({box}, shard, receiver)")
    indent = "    " * (pieces > 1)
    return tuple(indent + line for line in lines)


def _number_text(how: Rounds, giver: str, pieces: int) -> str:
    """Return the round of a box from `giver` to `taker`, as a Python expression."""
    tiles = "_number(wanted, receivers(sender))"
    shards = "shard_number * PIECES + piece" if pieces > 1 else "shard_number"
    closed = {
        "tiles": tiles,
        "shards": shards,
        "turns": f"({tiles} + {shards}) % {how.modulus}",
        "rotation": f"(taker - {giver}) % DEVICES",
        "mirror": f"taker ^ {giver}",
    }
    return closed[how.kind]


def how_facts(how: How, plan: Plan) -> tuple[str, ...]:
    """Return how the boxes travel, and the bytes on the wire, for a module's docstring."""
    match how:
        case Collectives():
            first = "Transport: collectives over axes." if how.wire[0] else "Nothing is sent."
        case Groups():
            first = f"Transport: one lax.all_to_all among groups of {how.members} devices."
        case Fetches():
            steps = ["one lax.ppermute"] * how.permutes
            sizes = [how.join.grid[dim] for dim in how.dimensions]
            steps += [f"one lax.all_gather among groups of {size}" for size in sizes]
            first = f"Transport: {', then '.join(steps)}, senders as FETCHES has them."
        case Ragged():
            first = "Transport: one lax.ragged_all_to_all; on CPU, rounds of lax.ppermute."
        case Rounds():
            shapes = "boxes of one shape in each" if how.exact else "padded to one shape in each"
            table = ", senders as ROUNDS has them" * (how.kind == "table")
            first = f"Transport: {how.count} rounds of lax.ppermute, {shapes}{table}."
    size, exact = DTYPES[plan.reshard.dtype], plan.traffic.received_total
    ratio = how.wire[1] * size / exact if exact else 1
    return (
        first,
        f"On the wire {ratio:.3f} times the exact bytes, {how.wire[0] * size} into the busiest "
        "device.",
    )
