"""The texts of a module's kernels: constants, functions, and the object that runs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from shardwright.codegen.backends.jax_host import HostText
from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.memory import LANES
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.routed.text import SLOT, function_of, schedule_lines
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.stages import Form
from shardwright.codegen.backends.pallas_tpu.terms import KernelEnds
from shardwright.codegen.backends.pallas_tpu.uniform import Uniform
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.emit.index_functions import IndexFunction, box_functions, index_functions
from shardwright.codegen.emit.python_text import INDENT, WIDTH, called
from shardwright.ir.exchange import Exchange

UNUSED = ("source_range",)
"""The index functions that no kernel calls, nor `verify`."""

PEERS = "PEERS"
"""The constant that finds what each end sends and gets."""

ID = "COLLECTIVE_ID"
"""The constant with the collective id of a kernel."""

FORMS = (
    "source_shard",
    "target_shard",
    "tile",
    "senders",
    "receivers",
    "target_position",
    "holder",
)
"""The index functions by which it does."""


@dataclass(frozen=True)
class KernelText:
    """`functions`: the index functions; `calls`: what support modules give, by module; `kernels`:
    the lines of functions after the constants that are what moves; `made`: the object that runs
    kernels; `positions`: functions of positions that are no index functions of all forms; `halves`:
    whether the kernel is one that starts and one that waits."""

    functions: tuple[IndexFunction, ...]
    calls: dict[str, tuple[str, ...]]
    libraries: frozenset[str]
    made: tuple[str, ...]
    moves: tuple[str, ...] = ()
    kernels: tuple[tuple[str, ...], ...] = ()
    positions: tuple[tuple[str, ...], ...] = field(default=())
    halves: bool = False


def kernel_text(
    exchange: Exchange, form: Form, host: HostText, powers_of_two: bool, ends: KernelEnds
) -> KernelText:
    """Return the text of a form; `powers_of_two`: whether it is for a topology of those."""
    if isinstance(form, Direct):
        uniform = Uniform.of(exchange, form, host.program_axes, ends)
        if uniform is not None:
            return _uniform(exchange, form, uniform, powers_of_two, ends)
    functions = ends.named(exchange.once(index_functions))
    unused = {*map(ends.own, UNUSED)}
    used = (*(f for f in functions if f.name not in unused), *ends.named(form.functions(exchange)))
    calls, made, before, kernels = _form(form, exchange, host, powers_of_two, ends)
    peers = _peers(exchange, host, ends)
    names = ["Forms", "Peers", *(["Pieces"] if exchange.rule.pieces > 1 else [])]
    return KernelText(
        functions=used,
        calls={**calls, "pallas_pieces": tuple(names)},
        libraries=_libraries(form, host),
        made=made,
        moves=(*peers, *before),
        kernels=kernels,
    )


def _libraries(form: Form, host: HostText) -> frozenset[str]:
    """Return the libraries that the kernel of a form uses, where it stands in the module."""
    if not isinstance(form, Direct):
        return frozenset()
    return frozenset(("pl", "pltpu", *(("jnp",) if host.communicates else ())))


def _settings(sends: bool, powers_of_two: bool, ends: KernelEnds) -> list[str]:
    """Return what every program is given of the mesh."""
    found = [f"collective_id={ends.own(ID)}"] if sends else []
    return [*found, *(["powers_of_two=True"] if powers_of_two else [])]


def _uniform(
    exchange: Exchange, form: Direct, uniform: Uniform, powers_of_two: bool, ends: KernelEnds
) -> KernelText:
    settings = _settings(uniform.sends, powers_of_two, ends)
    kind, given = "Direct", [ends.own("_kernel"), "1"]
    if uniform.sends:
        kind, given = "Halves", [ends.own("_start"), ends.own("_wait")]
    given += [ends.own(PEERS), repr(form.view), *settings]
    return KernelText(
        functions=ends.named(exchange.once(box_functions)),
        calls={"pallas_program": (kind, "Permuted"), "pallas_peers": tuple(uniform.calls)},
        libraries=uniform.libraries,
        made=tuple(called(f"{ends.program} = {kind}", given)),
        moves=tuple(uniform.peers_lines()),
        positions=uniform.functions,
        kernels=uniform.kernels,
        halves=uniform.sends,
    )


def _peers(exchange: Exchange, host: HostText, ends: KernelEnds) -> list[str]:
    rule, replicas = exchange.rule, exchange.target.replicas
    named, forms = list(map(ends.own, FORMS)), "FORMS"
    lines = called(f"{ends.own(forms)} = Forms", named) if ends.second else []
    given = [ends.source, ends.target]
    given.append(ends.own(forms) if ends.second else f"Forms({', '.join(named)})")
    given += [f"replicas={replicas}"] if replicas > 1 else []
    if rule.pieces > 1:
        cut = f"{rule.pieces}, {rule.cut}, {rule.unit}, {ends.own('piece_range')}"
        given.append(f"pieces=Pieces({cut})")
    given += [] if host.some_local else ["kept=False"]
    given += [] if host.communicates else ["sends=False"]
    return [*lines, *called(f"{ends.own(PEERS)} = Peers", given)]


Made = tuple[
    dict[str, tuple[str, ...]], tuple[str, ...], tuple[str, ...], tuple[tuple[str, ...], ...]
]
"""What is called, the object that runs kernels, constants, and functions."""


def _form(
    form: Form, exchange: Exchange, host: HostText, powers_of_two: bool, ends: KernelEnds
) -> Made:
    settings = _settings(host.communicates, powers_of_two, ends)
    match form:
        case Direct():
            return _direct(form, exchange, host, settings, ends)
        case Windows():
            return _windows(form, exchange, host, settings, ends)
        case Slots():
            return _slots(form, exchange, settings, ends)
        case Routed():
            return _routed(form, exchange, powers_of_two, ends)
        case _:
            assert_never(form)


def _direct(
    form: Direct, exchange: Exchange, host: HostText, settings: list[str], ends: KernelEnds
) -> Made:
    semaphores = ["sent", "received"] if host.communicates else ["copied"]
    order = "order, " if has_table(exchange) else ""
    last = ", order" if order else ""
    lines = [
        f"def {ends.own('_kernel')}({order}x, y, {', '.join(semaphores)}):",
        '    """Push this device\'s tiles into their receivers\' target shards.',
        "",
        f"    x, y: its source and target shard; {', '.join(semaphores)}: DMA semaphores.",
        '    """',
        f"    me, receiver = {ends.own(PEERS)}.here({order.removesuffix(', ')})",
    ]
    if host.communicates:
        lines += _pushing(last, ends)
    if host.some_local:
        lines += _keeping(exchange, host.communicates, ends)
    if host.communicates:
        lines += _waiting(exchange, ends)
    given = [ends.own("_kernel"), str(len(semaphores)), ends.own(PEERS), repr(form.view), *settings]
    sends = host.communicates
    calls = {
        "boxes": ("ranges", *(("extents",) if sends else ())),
        "pallas_program": ("Direct", *(("wait_for_units",) if sends else ())),
        "pallas_peers": (
            *("is_full", "multiple"),
            *(("LOGICAL", "total_far_apart", "units_in", "wait_for") if sends else ()),
        ),
    }
    view, divisors = map(ends.own, ("VIEW", "DIVISORS"))
    said = "What divides all starts and widths of tiles within their shards, in the order of"
    before = (
        f"# {said} {view}.",
        f"{view}, {divisors} = {form.view}, {form.divisors}",
    )
    made = tuple(called(f"{ends.program} = Direct", given))
    return calls, made, before, (_at(view, divisors, ends), tuple(lines))


def _at(view: str, divisors: str, ends: KernelEnds) -> tuple[str, ...]:
    """Return the function that gives the place of a tile in a shard."""
    return tuple(
        f'''def {ends.own("_at")}(ref, box, within):
    """Return the part of a shard that a tensor box takes; the shard covers the box `within`."""
    slices = []
    for axis, divisor in zip({view}, {divisors}, strict=True):
        low, high = box[2 * axis : 2 * axis + 2]
        start, size = multiple(low - within[2 * axis], divisor), multiple(high - low, divisor)
        slices.append(pl.ds(start, size))
    return ref.at[tuple(slices)]'''.splitlines()
    )


def _pushing(last: str, ends: KernelEnds) -> list[str]:
    peers, at = ends.own(PEERS), ends.own("_at")
    view, divisors = map(ends.own, ("VIEW", "DIVISORS"))
    return f"""    {peers}.meet(me, receiver{last})

    def push(number):
        sends, receiver, _, _, box = {peers}.outgoing(me, number{last})
        read, write = {at}(x, box, {ends.source_box}(me)), {at}(y, box, {ends.target_box}(receiver))
        device = jnp.int32({peers}.target_rank(receiver{last}))
        copy = pltpu.make_async_remote_copy(
            read, write, sent, received, device_id=device, device_id_type=LOGICAL
        )
        pl.when(sends)(copy.start)
        sizes = extents(box)
        return jnp.where(sends, units_in([sizes[axis] for axis in {view}], {divisors}), 0)

    left = total_far_apart({peers}.outgoing_count(me), push)""".splitlines()


def _keeping(exchange: Exchange, sends: bool, ends: KernelEnds) -> list[str]:
    """Return the lines that copy what a device keeps, and wait for that where nothing is sent."""
    peers, at = ends.own(PEERS), ends.own("_at")
    source, target, tile = map(ends.own, FORMS[:3])
    some = ["    some = is_full(ranges(kept))"]
    if not exchange.same_order:
        some.append(f"    some = some & {peers}.holds(me, {source}(me))")
        some.append(f"    some = some & {peers}.within(receiver, {ends.target})")
    reads = f"{at}(x, kept, {ends.source_box}(me))"
    writes = f"{at}(y, kept, {ends.target_box}(receiver))"
    return [
        "    # What this device holds of its own target shard.",
        f"    kept = {tile}(*{source}(me), *{target}(receiver))",
        *some,
        f"    read, write = {reads}, {writes}",
        f"    keep = pltpu.make_async_copy(read, write, {'received' if sends else 'copied'})",
        "    pl.when(some)(keep.start)",
        *([] if sends else ["    pl.when(some)(keep.wait)"]),
    ]


def _waiting(exchange: Exchange, ends: KernelEnds) -> list[str]:
    """Return the lines that wait for all: a semaphore counts bytes, so that one wait is for all
    tiles that come, of which a target shard consists."""
    divisors, within = ends.own("DIVISORS"), f"{ends.own(PEERS)}.within(receiver, {ends.target})"
    full = "is_full(ranges(whole))" + ("" if exchange.same_order else f" & {within}")
    # Nothing comes to a term without a value: there source shards have the first term only.
    new = (a for a, tiles in enumerate(exchange.dims) if tiles.source.extent < tiles.target.extent)
    full += "".join(f" & (whole[{2 * axis}] == 0)" for axis in new)
    return [
        "    # As many bytes come as its target shard has, and what left was counted.",
        f"    whole = {ends.target_box}(receiver)",
        f"    come = {ends.own('_at')}(y, whole, whole)",
        f"    full = {full}",
        "    pl.when(full)(lambda: wait_for(come, received))",
        f"    wait_for_units(x, {divisors}, left, sent)",
    ]


def _windows(
    form: Windows, exchange: Exchange, host: HostText, settings: list[str], ends: KernelEnds
) -> Made:
    tile, shard = _by(form.tile), _by([exchange.target.local_shape[axis] for axis in form.view])
    explained = {
        "unit": "as memory is tiled",
        "chunk": f"in whole units, of the widest tile, {tile}, or a part of it",
        "window": "a unit more where a chunk may begin within one",
        "blocks": f"ceil(target shard, {shard} / chunk)",
        "meet": "source shards that a block meets at most",
    }
    if host.communicates:
        explained |= {
            "chunks": f"ceil(widest tile, {tile} / chunk)",
            "stage": "tiles lie as in the target shard, each from a whole unit on,",
            "step": "and so much further for each tile before it: no two share a unit",
        }
    explained |= {"rolled": "the dimensions along which chunks are shifted"} if form.rolled else {}
    tiling = [(f"{name}={getattr(form, name)!r}", said) for name, said in explained.items()]
    if form.few_rows:
        tiling.append((f"more_rows={form.few_rows}", "memory of fewer rows is tiled otherwise"))
    parts = {axis: dim.parts for axis, dim in enumerate(exchange.source.dims) if not dim.is_flat}
    peers, named, source_at = map(ends.own, (PEERS, "TILING", "source_at"))
    given = [peers, repr(form.view), named, source_at, *settings]
    given += [f"source_parts={parts!r}"] if parts else []
    before = (*ABOUT_WINDOWS, *_explained(f"{named} = Tiling", tiling))
    made = tuple(called(f"{ends.program} = Windows", given))
    return {"pallas_windows": ("Tiling", "Windows")}, made, before, ()


ABOUT_WINDOWS = (
    "# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.",
    "# From there every block of the target shard is put together.",
)

Explained = list[tuple[str, str]]
"""Arguments, each with why it is what it is; empty where its name says it."""


def _explained(function: str, arguments: Explained) -> tuple[str, ...]:
    """Return a call with an argument a line, and why it is what it is where there is room."""
    lines = [f"{function}("]
    for argument, said in arguments:
        line = f"{INDENT}{argument},  # {said}"
        lines.append(line if said and len(line) <= WIDTH else f"{INDENT}{argument},")
    return (*lines, ")")


def _slots(form: Slots, exchange: Exchange, settings: list[str], ends: KernelEnds) -> Made:
    shape = form.granules, form.packed, LANES
    given = [
        (ends.own(PEERS), ""),
        (f"Slot({shape}, {form.window!r}, dense=True)", _granules(form.window, shape)),
        (f"window={form.window!r}", "the largest tile"),
        (f"outgoing={math.prod(form.outgoing)}", f"up to {_by(form.outgoing)} tiles of a device"),
        (f"incoming={math.prod(form.incoming)}", f"up to {_by(form.incoming)} tiles of a device"),
        *_reaches(form, exchange),
        *((setting, "") for setting in settings),
    ]
    return {"pallas_slots": ("Slot", "Slots")}, _explained(f"{ends.program} = Slots", given), (), ()


def _granules(held: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return why a slot has as many granules as it has."""
    return f"granules of 512 bytes: ceil({math.prod(held)} / {math.prod(shape[1:])})"


def _reaches(form: Slots | Routed, exchange: Exchange) -> Explained:
    """Return how far windows reach, where that is beyond the ends of shards."""
    sides = (
        ("source", form.source_reach, exchange.source.local_shape),
        ("target", form.target_reach, exchange.target.local_shape),
    )
    return [
        (f"{side}_reach={reach!r}", f"of windows at the last tiles in a shard of {_by(shape)}")
        for side, reach, shape in sides
        if reach != shape
    ]


def _by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _routed(form: Routed, exchange: Exchange, powers_of_two: bool, ends: KernelEnds) -> Made:
    name, slot = form.name.capitalize(), form.slot
    held = [repr(slot.shape), repr(slot.held), *(["dense=True"] if slot.dense else [])]
    held += [f"order={slot.order!r}"] if slot.turned else []
    sized = tuple((axis, slot.units[axis]) for axis in form.sized)
    held += [f"sized={sized!r}"] if sized else []
    held += ["halves=True"] if form.schedule.halves else []
    held += [f"chunks={form.chunks}"] if form.chunks > 1 else []
    what = "the source shard as far as windows reach" if form.spreads else "the largest tile"
    if slot.dense or form.in_place:
        shard = "the source shard" if form.spreads else "a tile"
        what = _granules(slot.held, slot.shape) if slot.dense else shard
    window = f"window={form.window!r}", "the largest tile"
    given = [
        *((ends.own(each), "") for each in (PEERS, "SCHEDULE", SLOT)),
        (f"view={form.view!r}", "its dimensions, in order") if form.in_place else window,
        (f"collective_id={ends.own(ID)}", ""),
        *([] if powers_of_two else [("powers_of_two=False", "all receivers are in reach")]),
        *_reaches(form, exchange),
    ]
    lines = called(f"{ends.own(SLOT)} = Slot", held)
    said = f"{lines[0]}  # {what}"
    above = [f"# {what[0].upper()}{what[1:]}.", *lines]
    slots = [said] if len(lines) == 1 and len(said) <= WIDTH else above
    before = (*slots, *schedule_lines(form, ends.own))
    made = _explained(f"{ends.program} = {name}", given)
    calls: dict[str, tuple[str, ...]] = {
        "pallas_slots": ("Slot",),
        "pallas_aligned" if form.in_place else "pallas_routed": (name,),
        "pallas_schedules": (function_of(form),),
    }
    return calls, made, before, ()


def has_table(exchange: Exchange) -> bool:
    """Return whether kernels take a table of ranks: where ids of devices have no closed form."""
    meshes = exchange.source.mesh, exchange.target.mesh
    return not exchange.same_order and not all(
        isinstance(mesh.device_ids, range) for mesh in meshes
    )
