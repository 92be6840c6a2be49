"""The text of a module's kernels: their constants and functions, and the object that runs them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from shardwright.codegen.backends.jax_host import HostText
from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.kernel_text import (
    DirectText,
    Moving,
    ProgramText,
    Setting,
    SlotsText,
    WindowsText,
    printed,
)
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.routed.text import kernel_of
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.stages import Form
from shardwright.codegen.backends.pallas_tpu.terms import KernelEnds
from shardwright.codegen.backends.pallas_tpu.uniform import Uniform
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.text.index_functions import IndexFunction, box_functions, index_functions
from shardwright.codegen.text.python_text import called
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.exchange import Exchange

UNUSED = ("source_range",)
"""Index functions that neither the kernels nor `verify` call."""

PEERS = "PEERS"
"""The name of the module's constant for the object that computes each device's peers."""

ID = "COLLECTIVE_ID"
"""The name of the module's constant for a kernel's collective id."""

FORMS = (
    "source_shard",
    "target_shard",
    "tile",
    "senders",
    "receivers",
    "target_position",
    "holder",
)
"""The index functions that the module passes to `Forms`."""


@dataclass(frozen=True)
class KernelText:
    """The text of a module's kernels. `functions`: the index functions; `calls`: the names used
    from support modules, by module; `libraries`: the JAX and numpy modules used, by short name;
    `made`: the lines of the object that runs the kernels; `moves`: the lines of the constants that
    describe transfers; `kernels`: the lines of the functions that follow them; `positions`: the
    lines of additional functions of positions; `halves`: whether the kernel can be split into one
    that starts transfers and one that waits for them."""

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
    """Return the text of a form's kernels; `powers_of_two`: whether the topology's devices send
    directly only over a power of two of links."""
    if isinstance(form, Direct | Slots):
        uniform = Uniform.of(exchange, form, host.program_axes, ends)
        if uniform is not None and isinstance(form, Direct):
            settings = _settings(host, uniform.sends, powers_of_two, ends)
            return _uniform(exchange, form, uniform, host.starts, settings, ends)
        if uniform is not None and isinstance(form, Slots) and uniform.sends:
            settings = _settings(host, uniform.sends, powers_of_two, ends, packed=True)
            return _thin(exchange, form, uniform, settings, ends)
    functions = ends.named(exchange.once(index_functions))
    unused = {*map(ends.own, UNUSED)}
    used = (*(f for f in functions if f.name not in unused), *ends.named(form.functions(exchange)))
    calls, made, kernels = _form(form, exchange, host, powers_of_two, ends)
    peers = _peers(exchange, host, ends)
    names: dict[str, tuple[str, ...]] = {"pallas_pieces": ("Forms", "Peers")}
    if not exchange.same_order:
        names = {"pallas_pieces": ("Forms",), "pallas_ranks": ("RankedPeers",)}
    if exchange.rule.pieces > 1:
        names["pallas_cuts"] = ("Pieces",)
    return KernelText(
        functions=used,
        calls={**calls, **names},
        libraries=_libraries(form),
        made=made,
        moves=tuple(peers),
        kernels=kernels,
    )


def _libraries(form: Form) -> frozenset[str]:
    match form:
        case Direct() | Slots():
            return frozenset(("pl", "pltpu"))
        case Windows():
            return frozenset(("jnp", "lax", "np", "pl", "pltpu"))
        case Routed():
            more = ("jnp",) if form.lines else ()
            return frozenset(("lax", "np", "pl", "pltpu", *more))
        case _:
            assert_never(form)


def _settings(
    host: HostText, sends: bool, powers_of_two: bool, ends: KernelEnds, *, packed: bool = False
) -> list[str]:
    found = [f"collective_id={ends.own(ID)}"] if sends else []
    bits = _bits(host.module.dtype, packed=packed)
    return [
        *found,
        *(["powers_of_two=True"] if powers_of_two else []),
        *([f'bits="{bits}"'] if bits else []),
    ]


def _bits(dtype: str, *, packed: bool) -> str:
    """Return when a program must move floats as integers of the same width: "always" if XLA packs
    small floats or TPU kernels lack the type, "interpreted" if only interpreted kernels need it (on
    a TPU it may cost a copy), or "" for never."""
    if dtype == "float16" or (packed and is_floating(dtype) and DTYPES[dtype] < 4):
        return "always"
    return "interpreted" if dtype in WIDENED or (packed and is_floating(dtype)) else ""


WIDENED = ("bfloat16", "float8_e5m2")
"""Floats that XLA on CPU widens to float32, which changes the bits of NaNs."""


def _uniform(
    exchange: Exchange,
    form: Direct,
    uniform: Uniform,
    starts: bool,
    settings: list[str],
    ends: KernelEnds,
) -> KernelText:
    text, kind, given = uniform.text, "Direct", [uniform.text.kernel, "1"]
    if uniform.sends:
        kind, given = "Halves", [text.start, text.wait]
    given += [ends.own(PEERS), repr(form.view)]
    given += [f"({text.start_kernel}, {text.done_kernel})"] if starts and uniform.sends else []
    given += settings
    return KernelText(
        functions=ends.named(exchange.once(box_functions)),
        calls={
            "pallas_direct": (kind, *(("tile_at",) if uniform.sends else ())),
            "pallas_peers": tuple(uniform.calls),
            "pallas_permuted": ("Permuted",),
        },
        libraries=uniform.libraries,
        made=tuple(called(f"{ends.program} = {kind}", given)),
        moves=tuple(uniform.peers_lines()),
        positions=uniform.functions,
        kernels=uniform.kernels(starts),
        halves=uniform.sends,
    )


def _thin(
    exchange: Exchange, form: Slots, uniform: Uniform, settings: list[str], ends: KernelEnds
) -> KernelText:
    text = uniform.thin(form)
    slot = f"Dense({text.name}SLOT, {text.name}TILE)"
    given = [text.kernel, ends.own(PEERS), slot, text.in_source, text.in_target]
    given += settings
    place = PALLAS.calls(uniform.place)
    return KernelText(
        functions=ends.named(exchange.once(box_functions)),
        calls={
            "pallas_peers": (*uniform.calls, *place, "operand"),
            "pallas_permuted": ("Permuted",),
            "pallas_thin": ("Dense", "Thin"),
        },
        libraries=uniform.libraries,
        made=tuple(called(f"{ends.program} = Thin", given)),
        moves=tuple(uniform.peers_lines()),
        positions=uniform.functions,
        kernels=printed("thin", text),
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
    kind = "Peers" if exchange.same_order else "RankedPeers"
    return [*lines, *called(f"{ends.own(PEERS)} = {kind}", given)]


SENDS = ("each", "far_apart", "remote_copy", "signal", "wait_for")
"""The functions of `pallas_peers` that a kernel calls if it sends."""

Given = tuple[str, list[str]]
"""The name of the object that runs the kernels, and its keyword arguments."""

Made = tuple[dict[str, tuple[str, ...]], tuple[str, ...], tuple[tuple[str, ...], ...]]
"""The names used from support modules, by module; the lines of the object that runs the kernels,
empty if the template prints the object with the kernels; and the lines of the kernels."""


def _form(
    form: Form, exchange: Exchange, host: HostText, powers_of_two: bool, ends: KernelEnds
) -> Made:
    sends, keeps = host.communicates, host.some_local
    packed = isinstance(form, Slots) or (isinstance(form, Routed) and not form.in_place)
    settings = _settings(host, sends, powers_of_two, ends, packed=packed)
    moving = Moving.of(exchange, ends, sends=sends, keeps=keeps)
    match form:
        case Direct():
            return _direct(form, moving, exchange, (ends.program, settings))
        case Windows():
            return _windows(form, moving, exchange, _program(form, ends, settings))
        case Slots():
            return _slots(form, moving, exchange, _program(form, ends, settings))
        case Routed():
            unlike = [] if powers_of_two else ["powers_of_two=False"]  # True is the default
            settings = [*unlike, *(each for each in settings if each != "powers_of_two=True")]
            program = _program(form, ends, settings)
            return _routed(form, exchange, host, ends, program)
        case _:
            assert_never(form)


def _program(form: Form, ends: KernelEnds, settings: list[str]) -> ProgramText:
    given = tuple(Setting(*setting.split("=")) for setting in settings)
    return ProgramText(ends.program, form.name.capitalize(), given)


def _direct(form: Direct, moving: Moving, exchange: Exchange, given: Given) -> Made:
    names, sends = moving.names, moving.sends
    program, settings = given
    arguments = [names.kernel, "2" if sends else "1", names.peers, repr(form.view), *settings]
    keeps = ("kept_by",) if moving.keeps or not sends else ()
    calls = {
        "pallas_direct": ("Direct",),
        "pallas_own": (*keeps, *(("is_filled",) if sends else ())),
        "pallas_peers": ("multiple", *(SENDS if sends else ())),
    }
    kernels = printed("direct", DirectText.of(form, exchange, moving))
    return calls, tuple(called(f"{program} = Direct", arguments)), kernels


def _windows(form: Windows, moving: Moving, exchange: Exchange, program: ProgramText) -> Made:
    context = WindowsText.of(form, exchange, moving, program)
    integers = {"digits_of", "div", "is_full", "maximum", "minimum", "rem"}
    rounds = "floor_to" in " ".join(context.starts)
    staging = ("Chunk", *(("floor_to",) if rounds else ())) if moving.sends else ()
    calls = {
        "pallas_windows": (*STEPS, *staging),
        "pallas_shifts": ("fill", "merge") if moving.sends else ("merge",),
        "pallas_peers": tuple(integers | ({*SENDS, "multiple"} if moving.sends else set())),
    }
    return calls, (), printed("windows", context)


STEPS = (
    "Part",
    "Tiling",
    "Windows",
    "cut",
    "in_int32",
    "moved_by",
    "units_at",
    "units_of",
    "within",
)
"""The names of `pallas_windows` that kernels of the windows form use."""


def _slots(form: Slots, moving: Moving, exchange: Exchange, program: ProgramText) -> Made:
    calls = {
        "pallas_packed": ("Slot",),
        "pallas_slots": ("Slots", "slot_number"),
        "pallas_own": ("kept_by",) if moving.keeps else (),
        "pallas_peers": ("div", "maximum", "operand", *(SENDS if moving.sends else ())),
    }
    return calls, (), printed("slots", SlotsText.of(form, exchange, moving, program))


def _routed(
    form: Routed, exchange: Exchange, host: HostText, ends: KernelEnds, program: ProgramText
) -> Made:
    text = kernel_of(form, exchange, host.program_axes, ends, program, keeps=host.some_local)
    integers = (name for name in ("div", "multiple") if f"{name}(" in text)
    calls = {
        "pallas_packed": ("Slot",),
        "pallas_aligned" if form.in_place else f"pallas_{form.name}": (program.form,),
        "pallas_steps": ("Schedule", "Step", "hop"),
        "pallas_peers": (*(set(SENDS) - {"far_apart"}), *integers),
    }
    return calls, (), (tuple(text.splitlines()),)
