"""The rows that a device needs from its own shard and from neighbouring shards."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from shardwright.codegen.ops.form_texts.statement import FormLine, FormText
from shardwright.codegen.ops.forms.halos import HaloPart, Pairs, RowWindow
from shardwright.codegen.ops.text import Expression
from shardwright.ir.axes import axes_text


def window_rows(
    form: FormText, given: str, place: int, dim: int, window: RowWindow, fill: str = "0"
) -> Generator[FormLine, None, str]:
    """Yield the statements that fetch rows of other shards, and return the name of all needed rows.
    Rows outside the tensor are filled with `fill`."""
    if window.is_own:
        return given
    texts = []
    for part in window.halo:
        text = _slice(given, part, dim, window.extent)
        if part.hops and part.pairs:
            text = yield from _once(form, "halo", sent(form, place, dim, text, part.pairs), True)
        elif part.hops:
            text = f"jnp.zeros_like({text})"
        texts.append(text)
    alone = len(texts) == 1
    both = ("jnp.concatenate", [f"({', '.join(texts)})", f"axis={dim}"])
    rows = yield from _once(form, "rows", texts[0] if alone else both)
    further, first = window.offset
    if further:
        start = _affine(form.at(place, dim), further, first)
        cut = [rows, start, str(window.length), f"axis={dim}"]
        rows = yield from _once(form, "rows", ("lax.dynamic_slice_in_dim", cut))
    if fill != "0" and window.is_outside:
        rows = yield from _filled(form, rows, place, dim, window, fill)
    return rows


def _once(
    form: FormText, name: str, made: Expression, moves: bool = False
) -> Generator[FormLine, None, str]:
    key = str(made)
    found = form.made.get(key)
    if found is None:
        found = form.made[key] = form.local(name)
        yield FormLine(found, made, moves)
    elif moves:
        yield FormLine("", made, moves)
    return found


def _slice(given: str, part: HaloPart, dim: int, extent: int) -> str:
    if (part.low, part.high) == (0, extent):
        return given
    return f"lax.slice_in_dim({given}, {part.low}, {part.high}, axis={dim})"


def _affine(number: str, factor: int, more: int) -> str:
    start = number if factor == 1 else f"{number} * {factor}"
    if not more:
        return start
    return f"{start} {'+' if more > 0 else '-'} {abs(more)}"


def _filled(
    form: FormText, rows: str, place: int, dim: int, window: RowWindow, fill: str
) -> Generator[FormLine, None, str]:
    first = _affine(form.at(place, dim), window.step, window.first)
    number = yield from _once(form, "number", f"jnp.arange({window.length}) + {first}")
    inside = [f"{number} >= 0", f"{number} < {window.extent * window.parts}"]
    there = yield from _once(form, "there", ("jnp.logical_and", inside))
    after = ", None" * (len(form.text.shapes[place]) - 1 - dim)
    mask = f"{there}[:{after}]" if after else there
    return (yield from _once(form, "rows", ("jnp.where", [mask, rows, fill])))


def sent(form: FormText, place: int, dim: int, text: str, pairs: Pairs) -> Expression:
    """Return the permutation that sends shards along the axes that split a dimension."""
    axes = form.axes(place, dim)
    ordered = form.text.axes.ordered(axes)
    if ordered != axes:  # jax numbers devices in mesh order
        at = form.positions(place, dim)
        pairs = tuple((at[source], at[target]) for source, target in pairs)
    return "lax.ppermute", [text, axes_text(ordered), pairs_text(pairs)]


def pairs_text(pairs: Sequence[tuple[int, int]]) -> str:
    """Format (sender, receiver) pairs as text, as a comprehension if all have the same distance.

    >>> pairs_text([(0, 1), (1, 2), (2, 3)]), pairs_text([(2, 1), (0, 1)])
    ('[(i, i + 1) for i in range(3)]', '[(2, 1), (0, 1)]')
    """
    first, hops = pairs[0][0], pairs[0][1] - pairs[0][0]
    sources = range(first, first + len(pairs))
    if len(pairs) < 3 or list(pairs) != [(n, n + hops) for n in sources]:
        return str(list(pairs))
    start = f"{first}, " if first else ""
    further = f"i {'+' if hops > 0 else '-'} {abs(hops)}"
    return f"[(i, {further}) for i in range({start}{sources.stop})]"
