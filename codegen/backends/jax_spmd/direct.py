"""A direct exchange as statements: each device cuts its shard into blocks, selects the blocks to
send, and assembles the new shard from its own blocks and the received ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardwright.codegen.backends.jax_spmd.exchange import turned
from shardwright.codegen.moves.at_once import Turning
from shardwright.codegen.moves.block_moves import DirectMove, Place
from shardwright.codegen.ops.collective_text import collective_call
from shardwright.codegen.ops.text import Expression
from shardwright.ir.axes import axes_text


def direct_statements(
    found: DirectMove,
    given: tuple[str, str],
    fresh: Callable[[str], str],
    table: Callable[[str, Any], str],
) -> Iterator[tuple[str, Expression]]:
    """Yield (target, expression) for each statement of a direct exchange.

    `given`: the names of the shard and of the result; `table`: a function that returns the name of
    the constant with a tree of texts.
    """
    cut, made = given
    blocks, device = fresh("parts"), fresh("device")  # short names, which are indexed in one line
    (old, new), block = found.blocks.cuts, found.blocks.block
    axes = axes_text(found.blocks.axes)
    rows = [row for row, _ in found.sent]
    received: list[tuple[str, Expression]] = []
    if found.blocks.is_at_once:
        sent = _selected(blocks, rows, "SENT", device, table)
        received.append((fresh("received"), collective_call("all_to_all", sent, axes, 0, 0)))
        every = received[0][0]
    else:
        for row, pairs in found.sent:
            sent = _selected(blocks, row, "SENT", device, table)
            arguments = [sent, axes, table("PERMUTATION", _texts(pairs))]
            received.append((fresh("received"), ("lax.ppermute", arguments)))
        every = fresh("stacked")
        stacked = "jnp.stack", [f"(*{blocks}, {', '.join(name for name, _ in received)})"]
        received.append((every, stacked))
    placed = _selected(every, found.placed, "PLACED", device, table)
    yield blocks, _cut(cut, old, block)
    selections = ([rows] if found.blocks.is_at_once else rows) + [found.placed]
    if any(len(set(each)) > 1 for each in selections):
        yield device, ("lax.axis_index", [axes])
    yield from received
    yield made, _joined(placed, new, block)


def _texts(items: Sequence[object]) -> list[str]:
    return list(map(str, items))


def _selected(
    blocks: str,
    rows: Sequence[Place] | Place,
    word: str,
    device: str,
    table: Callable[[str, Any], str],
) -> str:
    """Return the expression for the block or blocks that each device selects. `rows`: the selection
    of each device; `word`: the start of the constant's name, if selections differ."""
    first = rows[0]
    if len(set(rows)) > 1:
        tree = [each if isinstance(each, int) else _texts(each) for each in rows]
        return f"{blocks}[jnp.array({table(word, tree)})[{device}]]"
    if isinstance(first, int):
        return f"{blocks}[{first}]"
    return blocks if first == tuple(range(len(rows))) else f"{blocks}[jnp.array({list(first)})]"


def _cut(given: str, cuts: Place, block: Place) -> Expression:
    pieces, fronts = list[int](), list[int]()
    for cut, extent in zip(cuts, block, strict=True):
        if cut > 1:
            fronts.append(len(pieces))
            pieces.append(cut)
        pieces.append(extent)
    rest = [place for place in range(len(pieces)) if place not in fronts]
    return turned(given, Turning(tuple(pieces), (*fronts, *rest), (-1, *block)))


def _joined(given: str, cuts: Place, block: Place) -> Expression:
    several = [cut for cut in cuts if cut > 1]
    order, fronts = list[int](), iter(range(len(several)))
    for dim, cut in enumerate(cuts, len(several)):
        order += [next(fronts), dim] if cut > 1 else [dim]
    shape = [cut * extent for cut, extent in zip(cuts, block, strict=True)]
    return turned(given, Turning((*several, *block), tuple(order), tuple(shape)))
