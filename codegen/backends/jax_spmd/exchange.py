"""An all-to-all that gathers or splits several dimensions, in three statements: cut shards into one
block per device, exchange the blocks, and assemble the received blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from shardwright.codegen.ops.axis_text import axes_text
from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.text import Expression
from shardwright.codegen.partition.local.steps import LayoutChange

Shape = Sequence[int]


def exchange_statements(
    change: LayoutChange,
    source: LocalLayout,
    shapes: tuple[Shape, Shape],
    sizes: Mapping[str, int],
    given: tuple[str, str],
    fresh: Callable[[str], str],
) -> Iterator[tuple[str, Expression]]:
    """Yield (target, expression) for each statement of an exchange.

    `shapes`: the shapes of a shard before and after; `given`: the names of the shard and of the
    result.
    """
    cut, made = given
    blocks, came = fresh(f"{made}_blocks"), fresh(f"{made}_received")
    coming = _moved(change.axes, change.layout)
    going = _moved(change.axes, source)
    order = [sizes[name] for name in change.axes]
    parts = [math.prod(sizes[name] for name in names) for names in coming]
    inner = [extent // count for extent, count in zip(shapes[0], parts, strict=True)]
    places = _placed(coming)
    fronts = [places[name] for name in change.axes]
    rest = [at for at in range(len(places) + len(inner)) if at not in fronts]
    pieces = [
        each
        for names, extent in zip(coming, inner, strict=True)
        for each in (*(sizes[name] for name in names), extent)
    ]
    yield blocks, turned(cut, pieces, (*fronts, *rest), (math.prod(order), *inner))
    ends = ["split_axis=0", "concat_axis=0", "tiled=True"]
    yield came, ("lax.all_to_all", [blocks, axes_text(change.axes), *ends])
    dims = itertools.count(len(order))
    back = [
        each for names in going for each in (*(change.axes.index(n) for n in names), next(dims))
    ]
    yield made, turned(came, (*order, *inner), back, shapes[1])


def _moved(axes: Names, layout: LocalLayout) -> list[Names]:
    return [tuple(name for name in names if name in axes) for names in layout.dims]


def _placed(coming: Sequence[Names]) -> dict[str, int]:
    """Return the index of each axis in the shape in which every dimension is cut by its axes."""
    return {
        name: dim + before
        for dim, names in enumerate(coming)
        for before, name in enumerate(names, sum(map(len, coming[:dim])))
    }


def turned(given: str, cut: Shape, order: Shape, shape: Shape) -> Expression:
    """Reshape an array to `cut`, transpose it by `order`, and reshape it to `shape`."""
    if [*order] == sorted(order):
        return "jnp.reshape", [given, integers(tuple(shape))]
    made = [cut[dim] for dim in order]
    is_made = len(made) == len(shape) and all(
        n in (own, -1) for own, n in zip(made, shape, strict=True)
    )
    turns = f".transpose{integers(tuple(order))}"
    expression = f"{given}.reshape{integers(tuple(cut))}{turns}"
    return expression if is_made else ("jnp.reshape", [expression, integers(tuple(shape))])
