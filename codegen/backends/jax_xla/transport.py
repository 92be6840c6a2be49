"""The text of a module's transport: the body of `_exchange`, and the constants and functions that
it needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

import sympy

from shardwright.codegen.backends.jax_steps.blocks import Collectives
from shardwright.codegen.backends.jax_steps.plan import Steps
from shardwright.codegen.backends.jax_xla.boxes import reached
from shardwright.codegen.backends.jax_xla.fetches import Fetches
from shardwright.codegen.backends.jax_xla.groups import Groups
from shardwright.codegen.backends.jax_xla.ragged import Ragged
from shardwright.codegen.backends.jax_xla.rounds import Rounds
from shardwright.codegen.backends.lines import printed, pruned
from shardwright.codegen.backends.peers import Peers
from shardwright.codegen.text.context import constant_lines
from shardwright.codegen.text.index_functions import Assignment, FunctionBody
from shardwright.codegen.text.python_text import called
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, mod
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.cuts import unnamed
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout

How = Collectives | Groups | Fetches | Rounds | Ragged | Steps
Function = tuple[str, ...]
"""A function as lines of text."""

MOVES = "MOVES"
"""The name of the constant that describes the transfers."""


@dataclass(frozen=True)
class Transport:
    """The text of a transport.

    `lines`: the body of `_exchange`; `calls`: the support functions that it calls, by support
    module; `libraries`: the libraries that it uses, `jnp` and `lax`; `constants`: the lines of
    tables; `functions`: functions of positions; `moves`: the lines of the constant MOVES, if it is
    used.
    """

    lines: tuple[str, ...]
    calls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()
    constants: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    moves: tuple[str, ...] = ()


def transport_of(how: How, exchange: Exchange, some_local: bool, pads: bool = True) -> Transport:
    """Return the text of an exchange of tensors with at least one dimension. `pads`: whether boxes
    may extend beyond the ends of whole dimensions."""
    full = pads and (
        isinstance(how, Groups | Fetches) or (isinstance(how, Rounds) and not how.exact)
    )
    held, filled = exchange.source.local_shape, exchange.target.local_shape
    if not full or (isinstance(how, Fetches) and how.is_whole):
        return _transport(how, exchange, some_local, filled)
    padded = reached(exchange.source, exchange.target)
    found = _transport(how, exchange, some_local, reached(exchange.target, exchange.source))
    if padded == held:
        return found
    widths = [(0, end - size) for size, end in zip(held, padded, strict=True)]
    pad = f"x = jnp.pad(x, {tuple(widths)!r})"
    return replace(found, lines=(pad, *found.lines), libraries=found.libraries | {"jnp"})


def _transport(
    how: How, exchange: Exchange, some_local: bool, filled: tuple[int, ...]
) -> Transport:
    """Return the text of a transport from a source shard that is padded so that full boxes fit.
    `filled`: the shape of the target shard, padded in the same way."""
    match how:
        case Collectives():
            return Transport(tuple(how.lines("y")), libraries=how.uses)
        case Groups(join=join):
            lines = (f"y = among_groups(x, {MOVES}, AXES)", *join.lines_of_rows)
            return _by_rule(exchange, some_local, lines, {"xla_groups": ("among_groups",)})
        case Ragged(axis=axis, unit=unit):
            more = [f"unit={unit}"] if unit > 1 else []
            given = ["x", MOVES, "AXES", repr(how.target_rows), str(axis), *more]
            lines = (*how.lines_before, *called("y = ragged", given, indents=1), *how.lines_after)
            ragged = _by_rule(exchange, some_local, lines, {"xla_ragged": ("ragged",)})
            return replace(ragged, libraries=how.libraries)
        case Fetches():
            return _fetches(how)
        case Rounds(table=table) if table:
            return _listed_rounds(how, exchange.target.local_shape, filled)
        case Rounds():
            rounds = called("rounds = rounds_of", _rounds_arguments(how, exchange), indents=1)
            lines, call = _rounds_lines(how, exchange.target.local_shape, filled)
            calls: dict[str, tuple[str, ...]] = {"xla_rounds": (call, "rounds_of")}
            number = _round_of(how, exchange)
            return _by_rule(exchange, some_local, (*rounds, *lines), calls, number)
        case Steps(lines=lines):
            return Transport(
                lines,
                how.calls,
                how.libraries,
                how.constant_lines,
            )
        case _:
            assert_never(how)


def _by_rule(
    exchange: Exchange,
    some_local: bool,
    lines: tuple[str, ...],
    calls: dict[str, tuple[str, ...]],
    *more: Function,
) -> Transport:
    """Return a transport in which each end computes its peers; `more`: additional functions."""
    peers, rule = Peers(exchange, some_local), exchange.rule
    ends = ["_SOURCE", "_TARGET", "senders", "receivers"]
    listed = "Exchange"
    named: dict[str, tuple[str, ...]] = {"exchanges": ("Exchange",)}
    if rule.pieces > 1:
        ends.append(f"Cut({rule.pieces}, {rule.cut}, {rule.unit})")
        listed, named = "CutExchange", {"cuts": ("Cut", "CutExchange")}
    come = "Positions that the parts of a target shard come from"
    go = "Positions that the parts of a source shard go to"
    functions = (
        _function("senders(receiver)", f"{come}{peers.numbered}.", peers.senders()),
        _function("receivers(sender)", f"{go}{peers.numbered}.", peers.receivers()),
        *more,
    )
    return Transport(
        lines,
        {**named, **calls},
        functions=functions,
        moves=tuple(called(f"{MOVES} = {listed}", ends)),
    )


def _function(signature: str, doc: str, lines: list[str]) -> Function:
    return (f"def {signature}:", f'    """{doc}"""', *(f"    {line}" for line in lines))


def _rounds_lines(
    how: Rounds, shape: tuple[int, ...], filled: tuple[int, ...]
) -> tuple[tuple[str, ...], str]:
    if how.join is None:
        given = ["x", "rounds", "AXES", repr(filled)]
        cut = (f"y = y[{', '.join(f':{size}' for size in shape)}]",) if filled != shape else ()
        return (*called("y = in_rounds", given, indents=1), *cut), "in_rounds"
    stacked = f"y = stacked_rounds(x, rounds, AXES, {how.join.axis})"
    return (stacked, *how.join.lines), "stacked_rounds"


def _rounds_arguments(how: Rounds, exchange: Exchange) -> list[str]:
    by_rank = how.kind in ("rotation", "mirror") and not exchange.same_order
    more = ["by_shape=True"] * how.exact + ["by_rank=True"] * by_rank
    return [MOVES, "round_of", *more]


def _listed_rounds(how: Rounds, shape: tuple[int, ...], filled: tuple[int, ...]) -> Transport:
    lines, call = _rounds_lines(how, shape, filled)
    return Transport(
        (f"rounds = listed_rounds({MOVES}, ROUNDS)", *lines),
        {"xla_rounds": (call, "listed", "listed_rounds")},
        constants=(
            "# For each round, by rank: the rank to which it sends a whole tile, or -1 for none.",
            *_rows("ROUNDS", how.table),
        ),
        moves=(f"{MOVES} = listed(ROUNDS, _SOURCE, _TARGET)",),
    )


def _fetches(how: Fetches) -> Transport:
    lines, calls = [], []
    if not how.is_whole:
        given = ["x", "_SOURCE", "_TARGET", "FETCHES", "AXES", repr(how.join.window)]
        lines += called("y = fetched", given, indents=1)
        calls.append("fetched")
    if how.permutes:
        lines.append(f"y = permuted({'x' if how.is_whole else 'y'}, AXES, FETCHES)")
        calls.append("permuted")
    elif how.is_whole:
        lines.append("y = x")
    several = len(how.dimensions) > 1
    groups = "GROUPS" if how.members > 1 else "()"
    return Transport(
        (*lines, *how.gathers),
        {"xla_groups": tuple(sorted([*calls, "fetches", *(["along"] if several else [])]))},
        how.libraries,
        (
            "# The rank whose box every rank fetches, and who then gather one another's.",
            *constant_lines("FETCHES", [str(rank) for rank in how.senders]),
            *(_rows("GROUPS", how.groups) if how.members > 1 else ()),
            *_grid(how),
        ),
        moves=(f"{MOVES} = fetches(FETCHES, {groups}, _SOURCE, _TARGET)",),
    )


def _grid(how: Fetches) -> tuple[str, ...]:
    if len(how.dimensions) < 2:
        return ()
    return (
        "# How many boxes of a group stand along each dimension; its ranks are row-major in these.",
        f"GRID = {how.join.grid!r}",
    )


def _rows(name: str, table: tuple[tuple[int, ...], ...]) -> list[str]:
    rows = [f"({', '.join(map(str, row))}{',' * (len(row) == 1)})" for row in table]
    return constant_lines(name, rows)


def _round_of(how: Rounds, exchange: Exchange) -> Function:
    sender = Index("sender", exchange.source.mesh.size)
    receiver = Index("receiver", exchange.target.mesh.size)
    body, devices = FunctionBody(), exchange.ranks.size
    if how.kind == "rotation":
        text = f"(receiver - sender) % {devices}"
    elif how.kind == "mirror":
        text = "receiver ^ sender"
    else:
        text = PYTHON.text(_number(how, exchange, sender, receiver, body))
    last = f"return {text}"
    doc = "The number of the round in which a box goes from a sender to a receiver."
    lines = [*printed(PYTHON, pruned(body.lines, [last])), last]
    return _function("round_of(sender, receiver, piece)", doc, lines)


def _number(
    how: Rounds, exchange: Exchange, sender: Index, receiver: Index, body: FunctionBody
) -> Value:
    """Return the expression for the number of a box: at its sender, at its receiver, or the sum of
    the two, depending on the kind of rounds."""
    source, target = exchange.source, exchange.target
    found: Value = sympy.Integer(0)
    if how.kind in ("tiles", "turns"):
        found = found + _among(source, target, sender, receiver, "to", body)
    if how.kind in ("shards", "turns"):
        shards = _among(target, source, receiver, sender, "from", body) * exchange.rule.pieces
        if exchange.rule.pieces > 1:
            shards = shards + Index("piece", exchange.rule.pieces)
        found = found + shards
    if how.kind == "turns":
        found = mod(body.let("number", found), how.modulus)
    return simplify(found)


def _among(
    own: Layout, other: Layout, position: Index, peer: Index, side: str, body: FunctionBody
) -> Value:
    """Return the expression for the row-major number of a peer's shard among the shards of its side
    that intersect this device's shard."""
    number: Value = sympy.Integer(0)
    for axis, (dim, met) in enumerate(zip(own.dims, other.dims, strict=True)):
        let = unnamed if dim.is_flat else body.named(axis, side)
        low, high = dim.interval(dim.index(position), let)
        let = unnamed if met.is_flat else body.named(axis, f"{side}_peer_")
        first, last = met.owners(low, high, let)
        count = simplify(last - first + 1)
        if not count.is_Integer:
            count = body.let(f"{side}_count{axis}", last - first + 1)
        if count == 1:
            continue
        place = met.index(peer) - body.let(f"{side}_first{axis}", first)
        number = number * count + Index(f"{side}{axis}", met.parts)
        body.lines.append(Assignment(f"{side}{axis}", simplify(place)))
    return number
