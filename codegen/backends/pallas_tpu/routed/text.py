"""What emitted modules say of a schedule: of tiles the way of each, of source shards how far they
go. `pallas_schedules` of the support text makes the schedule of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count, product
from textwrap import wrap

from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop
from shardwright.codegen.emit.context import constant_lines
from shardwright.codegen.emit.python_text import INDENT, WIDTH, called

ABOUT_SHARDS = ("# How much farther on, digit by digit, the devices are that source shards go to.",)
ABOUT_HOPS = ("# Hops a, b, ...: to the device whose digit (stride, extent) is so much higher.",)
ABOUT_WAYS = (
    '# A row is for the receiver so much farther on, digit by digit: "3 0a1b 4 2" goes over hop a',
    "# in round 0, into slot 4, and over b in round 1, into slot 2. See `of_tiles`.",
)
ABOUT_STARTS = ("# A number before the way is the slot that the tile is in at first.",)
ABOUT_SIZES = ("# Numbers after the slots say how much of a slot is sent.",)
LETTERS = "abcdefghijkmnpqrstuvwxyz"
"""Of the names of hops: not those that look like digits."""


SLOT = "SLOT"
"""The constant that says how slots hold tiles, or shards."""


def function_of(form: Routed) -> str:
    """Return the function of the support text that makes the schedule of a form."""
    return "of_shards" if form.spreads else "of_tiles"


def schedule_lines(form: Routed, own: Callable[[str], str]) -> tuple[str, ...]:
    """Return the constants of a form's schedule, SCHEDULE the last; `own`: how a constant is named
    in its module."""
    digits = constant_lines(own("DIGITS"), [repr(pair) for pair in form.digits])
    tables, given = (_shards if form.spreads else _tiles)(form, own)
    return *digits, *tables, *called(f"{own('SCHEDULE')} = {function_of(form)}", given)


def _shards(form: Routed, own: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return the lines of the other constants, and what the function is given."""
    if form.lines:
        raise AssertionError("shards along lines: not all devices have as many receivers")
    offsets, orders, name, digits = form.schedule.offsets, form.schedule.orders, "OFFSETS", "DIGITS"
    ends = range(offsets[0], offsets[-1] + 1)
    listed = constant_lines(own(name), [*map(str, offsets)])
    table = [f"{own(name)} = {ends}"] if len(offsets) == len(ends) > 1 else listed
    order = f"({own(digits)},)" if orders == (form.digits,) else repr(orders)
    return [*ABOUT_SHARDS, *table], [own(digits), own(name), f"orders={order}", f"slot={own(SLOT)}"]


def _tiles(form: Routed, own: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return the lines of the other constants, and what the function is given."""
    names = dict(zip(form.schedule.hops, hop_names(), strict=False))
    hops = [str((hop.stride, hop.extent, hop.by)) for hop in names]
    starts = [*form.schedule.starts] != [*range(len(form.schedule.starts))]
    about = ABOUT_WAYS + ABOUT_STARTS * starts + ABOUT_SIZES * bool(form.slot.sizes)
    ways = text_lines(own("WAYS"), [*_ways(form, names)])
    given = [*map(own, ("DIGITS", "HOPS", "WAYS", SLOT))]
    given += [f"lines={form.lines!r}"] if form.lines else []
    given += ["shared=True"] if form.schedule.is_shared else []
    return [*ABOUT_HOPS, *constant_lines(own("HOPS"), hops), *about, *ways], given


def text_lines(name: str, items: list[str]) -> list[str]:
    """Return `name = "a; b"`, over as few lines as it takes."""
    if len(line := f'{name} = "{"; ".join(items)}"') <= WIDTH:
        return [line]
    words = "; ".join(item.replace(" ", NO_BREAK) for item in items)
    filled = wrap(
        words,
        WIDTH,
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f'{name} = """', *(line.replace(NO_BREAK, " ") for line in filled), '"""']


NO_BREAK = "\N{NO-BREAK SPACE}"


def hop_names() -> Iterator[str]:
    """Yield the names of hops: letters, then pairs of letters, and so on."""
    words = (map("".join, product(LETTERS, repeat=length)) for length in count(1))
    return chain.from_iterable(words)


def _ways(form: Routed, names: dict[Hop, str]) -> Iterator[str]:
    """Yield of each offset where it is at first, if that is not the slot of its number, its way,
    the slots that it comes to, and what is sent if that is less than a slot."""
    schedule = form.schedule
    ways, slots = (["" for _ in schedule.offsets], [list[int]() for _ in schedule.offsets])
    for turn, each in enumerate(schedule.rounds):
        over: dict[int, dict[int, tuple[Hop, Push]]] = {}
        for hop, move in ((sent.hop, move) for sent in each.sends for move in sent.moves):
            over.setdefault(move.number, {}).update(dict.fromkeys(move.halves, (hop, move)))
        for number, halves in over.items():
            ends = {(move.here, move.there) for _, move in halves.values()}
            if len(halves) != len(WHOLE) or len(ends) > 1:
                raise AssertionError(f"halves of offset {number} are in two slots")
            (first, move), (second, _) = (halves[half] for half in WHOLE)
            more = f"/{names[second]}" if second != first else ""
            ways[number] += f"{turn}{names[first]}{more}"
            slots[number].append(move.there)
    rows = zip(schedule.offsets, schedule.starts, ways, slots, strict=True)
    for number, (offset, start, way, places) in enumerate(rows):
        size = form.slot.size(number)
        sent = [size[axis] for axis in form.sized] if size != form.slot.shape else []
        begin = [] if start == number else [start]
        yield " ".join(map(str, (offset, *begin, way, *places, *sent)))
