"""Derive the expressions of a pushing kernel: the block of a tile that each program copies, and the
device to which it is written.

A launch copies the tiles of one source shard to all target shards that overlap it, including all
replicas. It is the pulling kernel with both sides exchanged, except for replicas of the source: a
program computes its receiver, and tests whether the rule selects this device to send to it. The
statements are in `templates/triton_gpu/push.py.jinja`.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from functools import cached_property

import sympy

from shardwright.codegen.backends.lines import FITS, conjunction, pruned
from shardwright.codegen.backends.peers import Peers
from shardwright.codegen.backends.triton_gpu.along import PUSHED, Along
from shardwright.codegen.backends.triton_gpu.kernel import Kernel, broken_value
from shardwright.codegen.backends.triton_gpu.kernel_text import PositionText, PushText
from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.text.index_functions import Assignment, FunctionBody
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import TRITON
from shardwright.ir.exchange import Exchange, same_ids
from shardwright.ir.layout import Digits, Layout, digits_apart, read_digits, write_digits

SENDER = PositionText("sender", "position of this device in the source mesh")
HOMES = PositionText("homes", "int64 [target positions]: the position of each in the source mesh")


@dataclass(frozen=True)
class PushKernel(Kernel):
    """The pushing kernel of the exchange `given`. `moves`: the moves of the reverse exchange, since
    the inherited expressions are computed with both sides exchanged."""

    given: Exchange | None = None

    @staticmethod
    def of(pulled: Kernel) -> PushKernel | None:
        """Return the pushing kernel for the tiles of a pulling kernel. Return None if tiles can
        only be pulled, because the receiver reduces them or the meshes have different devices."""
        given = pulled.exchange
        if pulled.reduces or not same_ids(given.source.mesh, given.target.mesh):
            return None
        back = Exchange(given.target, given.source, given.rule)
        moves = Moves(back, pulled.moves.itemsize)
        return PushKernel(moves, pulled.some_local, pulled.wide, given=given)

    @property
    def forth(self) -> Exchange:
        """The exchange in its own direction, from source to target."""
        assert self.given is not None
        return self.given

    @property
    def peers(self) -> Peers:
        """The senders and receivers of the forward exchange, as expressions."""
        return Peers(self.forth, self.some_local)

    @property
    def here(self) -> Index:
        """The source position of the device that runs the kernel."""
        return Index("sender", self.forth.source.mesh.size)

    @cached_property
    def shares(self) -> int:
        """The most replicas of a target shard to which a device sends."""
        return math.prod(digit.size for digit in self._apart[1])

    @cached_property
    def _apart(self) -> tuple[Digits, Digits]:
        """The digits of a receiver's replica that equal the sender's digits, and its other
        digits."""
        free = self.forth.target.free
        if self.forth.rule.kind != "own":
            return (), free
        return digits_apart(free, self.forth.source.free)

    @cached_property
    def text(self) -> PushText:  # type: ignore[override]
        body, digits = FunctionBody(), self.digits()
        tiles, owners = self.tiles_along(digits, body, PUSHED)
        receiver = Assignment("receiver", simplify(self._receiver(tiles, digits[-1])))
        named = [*body.lines, receiver]
        tests, held = self._tests(), ""
        own = tuple(simplify(each) for each in self.forth.source.index(self.here))
        if self.peers.tells_held:
            held = conjunction(self.peers.held(own), "&", FITS - 8 - len("held = "))
        piece = None
        if self.forth.rule.pieces > 1:
            number = simplify(self._piece(tiles))
            tiles, piece = self.cut(tiles, Index("piece", self.forth.rule.pieces))
            piece = replace(piece, number=TRITON.text(number))
        sends = conjunction(tests, "&", FITS - 16) if tests else ""
        conditions = [TRITON.text(simplify(low)) + f" < {high}" for low, high in self._terms()]
        conditions += ["sends"] if held else tests
        inside, rows = self.rows(tiles, conditions)
        moved = (*astuple(rows), *(astuple(piece) if piece else ()))
        *kept, receiver = pruned(named, ["receiver", held, sends, inside, *map(str, moved)])
        return PushText(
            parameters=(SENDER, *([HOMES] if self.peers.knows_me else [])),
            wide=self.wide,
            digits=tuple(self.taken()),
            dims=tuple(self.texts(kept, owners)),
            receiver=broken_value(receiver, 8),
            homes=self.forth.target.mesh.size if self.peers.knows_me else 0,
            held=held,
            sends=sends or "True",
            me=self.peers.me.name,
            piece=piece,
            inside=inside,
            deeper=4 if inside else 0,
            rows=rows,
            copy=self.copy,
        )

    def _hidden(self, axis: int) -> Along:
        """Return the tile along a hidden dimension: the sender's own term, or the target's only
        term."""
        source, one = self.forth.source.dims[axis], sympy.Integer(1)
        only = self.forth.target.dims[axis].parts == 1
        term: Value = 0 * one if only else source.index(self.here)
        return Along(term, 0 * one, 0 * one, one, one, one, ())

    def _terms(self) -> list[tuple[Value, int]]:
        """Return, for each hidden dimension along which the target does not need all terms, the
        number of the sender's term and the number of terms that the target needs."""
        found = []
        for source, target in zip(*(side.dims[: self.hidden] for side in self._sides), strict=True):
            if source.parts > target.parts:
                found.append((source.index(self.here), target.parts))
        return found

    @property
    def _sides(self) -> tuple[Layout, Layout]:
        return self.forth.source, self.forth.target

    def _receiver(self, tiles: list[Along], number: Value) -> Value:
        """Return the target position of replica `number` of the shard to which a tile belongs.
        Devices begin with different replicas and, if possible, end with their own."""
        own, others = self._apart
        turned = mod(number + read_digits(others, self.here) + 1, self.shares)
        position = write_digits(others, turned if self.shares > 1 else sympy.Integer(0))
        for digit in own:
            position = position + mod(floor_div(self.here, digit.stride), digit.size) * digit.stride
        for dim, tile in zip(self.forth.target.dims, tiles, strict=True):
            position = position + dim.place(tile.source)
        return position

    def _tests(self) -> list[str]:
        """Return the tests that the rule selects this device, among all that have its shard, to
        send to the receiver."""
        source, rule = self.forth.source, self.forth.rule
        if source.replicas == 1:
            return []
        if rule.kind == "own":
            _, apart = digits_apart(source.free, self.forth.target.free)
            return [
                f"{_of(read_digits((digit,), self.peers.receiver))} == "
                f"{_of(read_digits((digit,), self.here))}"
                for digit in apart
            ]
        holders = source.replicas // rule.pieces
        if holders == 1:
            return []
        turn = mod(self.forth.target.replica(self.peers.receiver), holders)
        return [f"{_of(turn)} == {_of(mod(source.replica(self.here), holders))}"]

    def _piece(self, tiles: list[Along]) -> Value:
        source, target, rule = self.forth.source, self.forth.target, self.forth.rule
        holders = source.replicas // rule.pieces
        shift = floor_div(target.replica(self.peers.receiver), holders) + tiles[rule.cut].source
        # Subtract the shift by adding its complement, since a dividend must not be negative.
        own = floor_div(source.replica(self.here), holders)
        return mod(own + (rule.pieces - 1) * shift, rule.pieces)


def _of(value: Value) -> str:
    return TRITON.text(simplify(value))
