"""The XLA module: plain JAX, `shard_map` and `lax` collectives, on CPU, GPU and TPU.

A direct plan uses the first of these transports that is possible:

    1. a few collectives over axes (`jax_steps/blocks.py`)
    2. a single round of `lax.ppermute` in closed form (`rounds.py`)
    3. among groups of devices, a permutation and an all-gather (`fetches.py`) or an all-to-all
       (`groups.py`), whichever has fewer collectives
    4. one `lax.ragged_all_to_all` (`ragged.py`), if the topology has it
    5. several rounds of `lax.ppermute` (`rounds.py`)

Each moves the plan's bytes plus less than 5% of padding, or less than 15% for collectives over axes
and collectives that replace several rounds. A round costs a pass over every device's memory and a
rendezvous, so fewer rounds are better: if whole tiles from freely chosen senders need fewer rounds
than the plan's senders and pieces, the module has a table of these rounds. A plan of several steps,
or of partial sums, runs step by step (`jax_steps/plan.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.jax_host import (
    HostText,
    facts_of,
    host_text,
    imports_of,
    library_lines,
    short_dims,
)
from shardwright.codegen.backends.jax_steps.blocks import WIDENED, Collectives, block_of_exchange
from shardwright.codegen.backends.jax_steps.plan import (
    Steps,
    is_stepwise,
    refuse_steps,
    steps_text,
)
from shardwright.codegen.backends.jax_xla.boxes import (
    MOST_PADDING,
    MOST_PADDING_AT_ONCE,
    Boxes,
)
from shardwright.codegen.backends.jax_xla.fetches import Fetches, fetches_of
from shardwright.codegen.backends.jax_xla.groups import Groups, groups_of
from shardwright.codegen.backends.jax_xla.laid import SMALL, moves_floats
from shardwright.codegen.backends.jax_xla.ragged import Ragged, ragged_of
from shardwright.codegen.backends.jax_xla.rounds import Rounds, rounds_of
from shardwright.codegen.backends.jax_xla.transport import (
    MOVES,
    Function,
    How,
    Transport,
    transport_of,
)
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.text.context import (
    ModuleText,
    Said,
    as_vectors,
    check_ascii,
    check_extents,
    text_of,
)
from shardwright.codegen.text.docstring import title
from shardwright.codegen.text.index_functions import box_functions
from shardwright.codegen.text.python_text import called
from shardwright.codegen.text.support import version
from shardwright.codegen.text.templates import render as render_template
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, HolderRule
from shardwright.ir.plan import DirectPlan, Plan, direct_of
from shardwright.ir.reshard import Reshard

NAME = "jax_xla"
# With more transfers, tracing a module takes too long.
MOST_TRANSFERS = 1 << 18


@dataclass(frozen=True)
class XlaText:
    """The context of the template. `wire_bytes`: the bytes that the busiest device receives,
    including padding; `moves`: the lines of constants that describe transfers; `kernels`: the
    functions after these constants."""

    backend: str
    support: str
    module: ModuleText
    host: HostText
    libraries: tuple[str, ...]
    support_lines: tuple[str, ...]
    wire_bytes: int
    constants: tuple[str, ...]
    functions: tuple[Function, ...]
    moves: tuple[str, ...]
    kernels: tuple[Function, ...]
    host_lines: tuple[str, ...]

    has_doors = False
    """Whether the module tells callers how to add features: never in plain JAX, where features add
    no functions."""

    @property
    def threads(self) -> int:
        return self.host.devices


def refuse(plan: Plan) -> None:
    """Raise InputError for a reshard that this backend does not support."""
    if plan.reshard.adds and plan.strategy == "direct":
        raise InputError(
            "jax_xla can reduce partial sums only by collectives, not in a direct exchange",
            argument="strategy",
            got="direct",
            expected="basis",
        )
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
            "the reshard has too many transfers for jax_xla to trace",
            argument="target",
            got=f"{count} transfers",
            expected=f"at most {MOST_TRANSFERS}, or a reshard by collectives over whole axes",
        )


def render(request: Request) -> str:
    return render_template("common/jax_module.py.jinja", xla_text(request))


def how_of(plan: DirectPlan) -> How:
    """Choose the transport of a direct plan's transfers."""
    collectives = plan.once(_collectives)
    if collectives is not None:
        return collectives
    exchange, (boxes, whole) = as_vectors(plan.exchange), plan.once(boxes_of)
    rounds = rounds_of(exchange, boxes, whole)
    if rounds.count == 1 and rounds.join:
        return rounds  # a single permutation in closed form
    among_groups = (fetches_of(exchange, whole), groups_of(exchange, boxes))
    exact = _exact(plan)
    tight = [how for how in among_groups if how and _is_tight(how.wire, exact)]
    if not tight and rounds.count > 1:
        ragged = _ragged(plan, boxes)
        if ragged is not None:
            return ragged
        most = MOST_PADDING_AT_ONCE
        tight = [how for how in among_groups if how and _is_tight(how.wire, exact, most)]
    return min(tight, key=lambda how: how.collectives, default=rounds)


def boxes_of(plan: DirectPlan) -> tuple[Boxes, Boxes]:
    """Return two sets of boxes of a plan: the boxes that its senders send, cut into pieces, and the
    boxes of whole tiles."""
    exchange, pads = as_vectors(plan.exchange), plan.reshard.dtype not in WIDENED
    boxes = whole = Boxes.of(exchange, pads)
    if exchange.rule.pieces > 1:
        whole = Boxes.of(replace(exchange, rule=HolderRule("turns")), pads)
    return boxes, whole


def _ragged(plan: DirectPlan, boxes: Boxes) -> Ragged | None:
    if plan.prediction is None or not plan.reshard.shape:
        return None
    row_bytes = topology_of(plan.prediction.topology).ragged
    found = ragged_of(plan.exchange, boxes, DTYPES[plan.reshard.dtype], row_bytes)
    return found if found is not None and _is_tight(found.wire, _exact(plan)) else None


def _collectives(plan: DirectPlan) -> Collectives | None:
    found = block_of_exchange(plan.reshard, plan.exchange)
    exact = plan.traffic.received_max, plan.traffic.received_total
    if found is None or not _is_tight(found.wire, exact, MOST_PADDING_AT_ONCE):
        return None
    return found


def _exact(plan: Plan) -> tuple[int, int]:
    """Return the number of elements that the busiest device receives, and that all devices
    receive."""
    size = DTYPES[plan.reshard.dtype]
    return plan.traffic.received_max // size, plan.traffic.received_total // size


def _is_tight(wire: tuple[int, int], exact: tuple[int, int], most: float = MOST_PADDING) -> bool:
    return all(w == e or w < (1 + most) * e for w, e in zip(wire, exact, strict=True))


def _transfers(exchange: Exchange) -> int:
    tiles = math.prod(dim.pairs.source.size for dim in exchange.dims)
    return tiles * exchange.target.replicas * exchange.rule.pieces


def xla_text(request: Request) -> XlaText:
    """Return the context of a reshard module's template."""
    plan = request.plan
    if is_stepwise(plan):
        text = steps_text(plan, request.command)
        transport = transport_of(text.how, text.ends, some_local=False)
        floats = moves_floats(plan.reshard, text.how, text.ends)
        return _text(
            request, text.host, transport, text.how.wire[0], text.target_short, as_floats=floats
        )
    direct = direct_of(plan)
    exchange, how = as_vectors(direct.exchange), direct.once(how_of)
    said = Said(title(plan), (*facts_of(direct), "", *how_facts(how, plan)))
    functions = exchange.once(box_functions)
    module = text_of(plan, request.command, PYTHON, functions, said, direct.exchange)
    host = host_text(plan, module)
    transport = transport_of(how, exchange, host.some_local, direct.reshard.dtype not in WIDENED)
    if module.scalar and not isinstance(how, Collectives):
        lines = ("x = x.reshape(1)", *transport.lines, "y = y.reshape(())")
        transport = replace(transport, lines=lines)
    short = () if _is_exact(how) else _short_dims(exchange)
    wire, _ = _wire_bytes(how, plan)
    floats = moves_floats(plan.reshard, how, exchange)
    return _text(request, host, transport, wire, short, as_floats=floats)


def _text(
    request: Request,
    host: HostText,
    transport: Transport,
    wire: int,
    short: tuple[int, ...],
    *,
    as_floats: bool,
) -> XlaText:
    """Return the template's context. `wire`: the bytes that the busiest device receives; `short`:
    the dimensions along which the transport leaves nonzero padding; `as_floats`: whether small
    floats move unchanged on a TPU."""
    calls = {name: list(names) for name, names in transport.calls.items()}
    program = ["_exchange", "AXES"]
    if short:
        transport = _zeroed(transport, short)
        calls["jax_extents"] = ["extent_of"]
        if transport.moves:
            calls["jax_zeros"] = ["zeroed"]
        else:
            calls["jax_extents"].append("zeroed_everywhere")
    if any(host.terms):
        program.append(f"terms={_terms(request.plan)}")
        calls["jax_terms"] = ["Terms"]
    bits = _bits(request.plan.reshard, as_floats=as_floats)
    if bits:
        program.append(f"bits={bits}")
        calls["xla_bits"] = [bits]
    calls |= {
        **host.calls(request),
        "jax_meshes": ["Sharded"],
        "xla_program": ["XlaProgram"],
    }
    if transport.moves:
        program.append(f"moves={MOVES}")
    return XlaText(
        backend=NAME,
        support=version(NAME),
        module=host.module,
        host=replace(host, buffers=request.buffers),
        libraries=library_lines(transport.libraries),
        support_lines=imports_of(calls),
        wire_bytes=wire,
        constants=(
            f"AXES = {host.program_axes}  # mesh axes that number the devices",
            *transport.constants,
        ),
        functions=transport.functions,
        moves=(*host.side_lines, *transport.moves),
        kernels=(_exchange_lines(transport),),
        host_lines=(
            *called("_PROGRAM = XlaProgram", program),
            *host.host_lines(request, NAME),
        ),
    )


def _zeroed(transport: Transport, short: tuple[int, ...]) -> Transport:
    extent = "extent = extent_of(_SOURCE, _TARGET, lax.axis_index(AXES))"
    zeroed, given = "zeroed_everywhere", ["y", repr(short), "extent"]
    if transport.moves:
        zeroed, given = "zeroed", ["y", "_TARGET", repr(short), "extent"]
    lines = (*transport.lines, extent, *called(f"y = {zeroed}", given, indents=1))
    return replace(transport, lines=lines, libraries=transport.libraries | {"lax"})


def _exchange_lines(transport: Transport) -> Function:
    doc = "Return the target shard of a device from its source shard, inside shard_map."
    body = (f"    {line}" for line in transport.lines)
    return ("def _exchange(x):", f'    """{doc}"""', *body, "    return y")


def _bits(reshard: Reshard, *, as_floats: bool) -> str:
    """Return the support function that preserves every bit of small floats, or "" if no element
    needs it. `as_floats`: whether they move as floats on a TPU."""
    if reshard.adds or not is_floating(reshard.dtype) or DTYPES[reshard.dtype] >= SMALL:
        return ""
    return "as_bits_but_on_tpu" if as_floats else "as_bits"


def _terms(plan: Plan) -> str:
    reshard = plan.reshard
    operators = reshard.source.operator, reshard.target.operator
    given = [f'"{operator}"' for operator in operators]
    given += ["transposed=True"] if reshard.transposed else []
    return f"Terms({', '.join(given)})"


def _short_dims(exchange: Exchange) -> tuple[int, ...]:
    """Return the dimensions along which the target's padding may be nonzero. Dimensions that are
    whole in the source are left out, since they are padded with zeros."""
    split = (axis for axis, dims in enumerate(exchange.dims) if dims.source.parts > 1)
    return tuple(sorted({*split} & {*short_dims(exchange.target)}))


def _is_exact(how: How) -> bool:
    """Return whether windows contain only boxes, so that the result's padding is not written."""
    return isinstance(how, Ragged) or (isinstance(how, Rounds) and how.exact)


def _wire_bytes(how: How, plan: Plan) -> tuple[int, int]:
    """Return the bytes received by the busiest device, and by all devices, padding included."""
    if isinstance(how, Collectives | Steps):
        return how.wire
    size = DTYPES[plan.reshard.dtype]
    return size * how.wire[0], size * how.wire[1]


def how_facts(how: How, plan: Plan) -> tuple[str, ...]:
    """Return docstring lines about the transport and the bytes on the wire, or none for a plan of
    several steps."""
    match how:
        case Collectives():
            first = "Transport: collectives over axes." if how.wire[0] else "Nothing is sent."
        case Groups():
            first = f"Transport: one lax.all_to_all among groups of {how.members} devices."
        case Fetches():
            steps = ["one lax.ppermute"] * how.permutes
            sizes = [how.join.grid[dim] for dim in how.dimensions]
            steps += [f"one lax.all_gather among groups of {size}" for size in sizes]
            first = f"Transport: {', then '.join(steps)}; FETCHES lists the senders."
        case Ragged():
            first = "Transport: one lax.ragged_all_to_all; on CPU, rounds of lax.ppermute."
        case Steps():
            return ()
        case Rounds():
            shapes = "all boxes of a round of one shape"
            shapes = shapes if how.exact else "boxes padded to one shape in each round"
            table = "; ROUNDS lists the receivers" * (how.kind == "table")
            first = f"Transport: {how.count} rounds of lax.ppermute, {shapes}{table}."
    (most, total), exact = _wire_bytes(how, plan), plan.traffic.received_total
    ratio = total / exact if exact else 1
    return (
        first,
        f"The wire carries {ratio:.3f} times the bytes of the tiles.",
        f"The busiest device receives {most} bytes, padding included.",
    )
