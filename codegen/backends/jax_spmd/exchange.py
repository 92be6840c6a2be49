"""An all-to-all that gathers or splits several dimensions, in three statements: cut shards into one
block per device, exchange the blocks, and assemble the received ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from shardwright.codegen.moves.at_once import AtOnce, Turning
from shardwright.codegen.moves.move import LayoutMove
from shardwright.codegen.ops.collective_text import collective_call
from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.text import Expression
from shardwright.ir.axes import axes_text


def exchange_statements(
    change: LayoutMove,
    source: LocalLayout,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    given: tuple[str, str],
    fresh: Callable[[str], str],
) -> Iterator[tuple[str, Expression]]:
    """Yield a (target, expression) pair for each statement of an exchange.

    `shape`: the shape of a shard before; `given`: the names of the shard and of the
    result.
    """
    cut, made = given
    blocks, came = fresh(f"{made}_blocks"), fresh(f"{made}_received")
    order = [sizes[name] for name in change.axes]
    coming, going = (_moved(change.axes, layout) for layout in (change.after, source))
    turns = AtOnce.of(shape, order, coming, going)
    yield blocks, turned(cut, turns.before)
    yield came, collective_call("all_to_all", blocks, axes_text(change.axes), 0, 0)
    yield made, turned(came, turns.after)


def _moved(axes: Names, layout: LocalLayout) -> list[list[int]]:
    """Return, for each dimension, the indices in `axes` of the axes that split it."""
    return [[axes.index(name) for name in names if name in axes] for names in layout.dims]


def turned(given: str, turn: Turning) -> Expression:
    """Return the expression for an array after a turn."""
    shape = integers(turn.shape)
    if [*turn.order] == sorted(turn.order):
        return "jnp.reshape", [given, shape]
    made = tuple(turn.split[dim] for dim in turn.order)
    is_made = len(made) == len(turn.shape) and all(
        n in (own, -1) for own, n in zip(made, turn.shape, strict=True)
    )
    expression = f"{given}.reshape{integers(turn.split)}.transpose{integers(turn.order)}"
    return expression if is_made else ("jnp.reshape", [expression, shape])
