"""The text of a module's kernels: their constants and functions, and the object that runs them. The
template contexts of several forms share some parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwright.codegen.backends.jax_host import HostText
from shardwright.codegen.backends.pallas_tpu.terms import KernelEnds
from shardwright.codegen.text.index_functions import IndexFunction, index_functions
from shardwright.codegen.text.python_text import called
from shardwright.codegen.text.templates import render
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


@dataclass(frozen=True)
class KernelRequest:
    """An exchange whose kernel a form prints. `powers_of_two`: whether the topology's devices send
    directly only over a power of two of links."""

    exchange: Exchange
    host: HostText
    powers_of_two: bool
    ends: KernelEnds

    @property
    def sends(self) -> bool:
        """Whether any device sends anything."""
        return self.host.communicates

    def settings(self, *, sends: bool, packed: bool = False) -> list[str]:
        """Return the keyword arguments that programs of every form have; `packed`: whether XLA
        packs tiles."""
        found = [f"collective_id={self.ends.own(ID)}"] if sends else []
        bits = _bits(self.host.module.dtype, packed=packed)
        return [
            *found,
            *(["powers_of_two=True"] if self.powers_of_two else []),
            *([f'bits="{bits}"'] if bits else []),
        ]

    def kernel(
        self,
        calls: dict[str, tuple[str, ...]],
        libraries: tuple[str, ...],
        kernels: tuple[tuple[str, ...], ...],
        *,
        made: tuple[str, ...] = (),
        functions: tuple[IndexFunction, ...] = (),
    ) -> KernelText:
        """Return the text of kernels whose devices compute their peers with index functions.
        `calls`, `libraries`, `kernels`, `made`: see `KernelText`; `functions`: the index functions
        that the kernels need in addition to the common ones."""
        exchange, ends = self.exchange, self.ends
        unused = {*map(ends.own, UNUSED)}
        common = (f for f in ends.named(exchange.once(index_functions)) if f.name not in unused)
        names: dict[str, tuple[str, ...]] = {"pallas_pieces": ("Forms", "Peers")}
        if not exchange.same_order:
            names = {"pallas_pieces": ("Forms",), "pallas_ranks": ("RankedPeers",)}
        if exchange.rule.pieces > 1:
            names["pallas_cuts"] = ("Pieces",)
        return KernelText(
            functions=(*common, *ends.named(functions)),
            calls={**calls, **names},
            libraries=frozenset(libraries),
            made=made,
            moves=tuple(self._peers()),
            kernels=kernels,
        )

    def _peers(self) -> list[str]:
        exchange, host, ends = self.exchange, self.host, self.ends
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


def _bits(dtype: str, *, packed: bool) -> str:
    """Return when a program must move floats as integers of the same width: "always" if XLA packs
    small floats or TPU kernels lack the type, "interpreted" if only interpreted kernels need it (on
    a TPU it may cost a copy), or "" for never."""
    if dtype == "float16" or (packed and is_floating(dtype) and DTYPES[dtype] < 4):
        return "always"
    return "interpreted" if dtype in WIDENED or (packed and is_floating(dtype)) else ""


WIDENED = ("bfloat16", "float8_e5m2")
"""Floats that XLA on CPU widens to float32, which changes the bits of NaNs."""


SENDS = ("each", "far_apart", "remote_copy", "signal", "wait_for")
"""The functions of `pallas_peers` that a kernel calls if it sends."""

Lines = tuple[str, ...]


@dataclass(frozen=True)
class KernelNames:
    """The names in a kernel's text: constants, functions, and the boxes of both sides."""

    peers: str
    slot: str
    tiling: str
    view: str
    divisors: str
    source_shard: str
    target_shard: str
    senders: str
    receivers: str
    source_at: str
    at: str
    viewed: str
    staged: str
    part_of: str
    kernel: str
    push_kernel: str
    unpack_kernel: str
    source_box: str
    target_box: str
    target: str

    @staticmethod
    def of(ends: KernelEnds) -> KernelNames:
        constants = ("PEERS", "SLOT", "TILING", "VIEW", "DIVISORS")
        functions = ("source_shard", "target_shard", "senders", "receivers", "source_at")
        own = ("at", "viewed", "staged", "part_of", "kernel", "push_kernel", "unpack_kernel")
        return KernelNames(
            **{name.lower(): ends.own(name) for name in constants},
            **{name: ends.own(name) for name in functions},
            **{name: ends.own(f"_{name}") for name in own},
            source_box=ends.source_box,
            target_box=ends.target_box,
            target=ends.target,
        )


@dataclass(frozen=True)
class Moving:
    """The context that all kernels share. `source`, `target`: the phrases for a device's source and
    target shard; `sends`: whether anything is sent; `keeps`: whether any device already has a part
    of its target shard; `pieces`: the number of pieces of a tile, each sent by a different
    device."""

    names: KernelNames
    source: str
    target: str
    sends: bool
    keeps: bool
    pieces: int

    @staticmethod
    def of(request: KernelRequest) -> Moving:
        ends, host = request.ends, request.host
        sides = ends.said("source shard"), ends.said("target shard")
        pieces = request.exchange.rule.pieces
        return Moving(KernelNames.of(ends), *sides, host.communicates, host.some_local, pieces)


@dataclass(frozen=True)
class Setting:
    """A keyword argument of a program: its name and its expression."""

    name: str
    value: str


@dataclass(frozen=True)
class ProgramText:
    """The object that runs the kernels of a form: its name, class and keyword arguments."""

    name: str
    form: str
    settings: tuple[Setting, ...]

    @staticmethod
    def of(form: str, ends: KernelEnds, settings: list[str]) -> ProgramText:
        given = tuple(Setting(*setting.split("=")) for setting in settings)
        return ProgramText(ends.program, form.capitalize(), given)


def reach(extents: tuple[int, ...], local: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the extents to which windows reach in a shard, None if they end with the shard."""
    return None if extents == local else extents


def by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def printed(form: str, context: object) -> tuple[Lines, ...]:
    """Render a form's template. Return its one function, as a tuple of its lines."""
    return (tuple(render(f"pallas_tpu/{form}.py.jinja", context).splitlines()),)
