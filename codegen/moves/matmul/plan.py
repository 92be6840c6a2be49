"""Choose the plan of a matmul: bound every candidate from below, and plan only promising ones.

A candidate costs its movements plus its product. `moves.bound_of` bounds a movement without a plan.
Candidates are planned in the order of their bounds, until no other candidate can be better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardwright.codegen.hardware.presets import (
    MOST_DEVICES,
    check_devices,
    is_processor,
    name_of,
    topology_of,
)
from shardwright.codegen.hardware.rates import check_multiplies, multiply_rate
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.moves.matmul.candidates import multiplications
from shardwright.codegen.moves.matmul.cases import cases_of
from shardwright.codegen.moves.matmul.loops import looped
from shardwright.codegen.moves.matmul.moves import Movements, busiest
from shardwright.codegen.moves.matmul.pulled import pulled, reads_peers
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError, InternalError, check_type, one_of
from shardwright.ir.matmul import SIDES, Matmul
from shardwright.ir.matmul_plan import MatmulCandidate, MatmulCost, MatmulPlan
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.reshard import Reshard

LISTED = 5
"""The number of other candidates that a plan lists. Each is of a different kind."""

WAYS = ("one", "both")
"""The loops round rings, which are the default of `among`."""
LOOPS = ("auto", "never", *WAYS, "pulled")
BYTES = "switch,latency=1e-10"
"""The topology of plans without one: its latency is so small that only bytes take time."""

Rank = tuple[float, ...]
"""The sort key of a candidate; the lowest is best."""


def plan_matmul(
    matmul: Matmul,
    topology: str | Topology | None = None,
    *,
    loop: str = "auto",
    among: tuple[str, ...] = WAYS,
    like: MatmulCandidate | None = None,
    listed: int = LISTED,
) -> MatmulPlan:
    """Return the fastest plan of a matmul on a topology. Without a topology, minimise the sum of
    the bytes that the busiest device of each movement receives, then the flops.

    `loop`: whether parts move while devices multiply: in "one" or "both" directions around a ring,
    "pulled" by a kernel, "never", or "auto", which uses a loop of `among` if that is faster on the
    topology. `among`: the loops that the modules execute.
    `like`: a candidate of a similar matmul, whose split and kind of loop are reused. `listed`: the
    number of other candidates to list; if devices read each other's memory, the chosen candidate
    with, or without, a pulling kernel is listed in addition.

    Raises InputError for a topology with too few devices, for devices that cannot multiply the
    element type, and if no candidate can have the loop or the pulling kernel.
    """
    check_type(matmul, Matmul, "Matmul(dtype, lhs, rhs, out)", "matmul")
    if loop not in LOOPS:
        raise InputError("no such loop", argument="loop", got=loop, expected=one_of(LOOPS))
    if like is not None:
        loop = "never" if like.loop is None else WAYS[like.loop.directions - 1]
        loop = "pulled" if like.pulled else loop
    search = _Search.of(matmul, topology, loop, among)
    search.check_pulls()
    bounded = sorted(search.bounded(), key=lambda each: each.rank)
    if like is not None:
        bounded = [each for each in bounded if each.is_like(like)]
    if not bounded:
        raise InternalError("no candidate has the product of the given one")
    chosen = search.best(bounded)
    if like is not None:
        chosen = replace(chosen, pulled=like.pulled)
    others = search.others(bounded, chosen, listed)
    named = None if topology is None else str(search.network.topology)
    count = len(bounded)
    return MatmulPlan(matmul, cases_of(matmul), chosen, others, count, named, loop, among)


@dataclass(frozen=True)
class _Bounded:
    """A candidate whose movements are not planned yet. `rank`: a lower bound on its rank."""

    multiplication: Multiplication
    movements: tuple[Reshard, Reshard, Reshard]
    rank: Rank

    def is_like(self, other: MatmulCandidate) -> bool:
        mine, its = self.multiplication, other.multiplication
        return (mine.axes, mine.terms) == (its.axes, its.terms)

    @property
    def kind(self) -> tuple[bool, ...]:
        """Four booleans that define the kind of a candidate: whether lhs, rhs and the result
        move, and whether the product is a partial sum."""
        moves = [each.source != each.target for each in self.movements]
        return (*moves, bool(self.multiplication.shardings["out"].unreduced))


@dataclass(frozen=True)
class _Search:
    matmul: Matmul
    network: Network
    movements: Movements
    loop: str
    among: tuple[str, ...] = WAYS

    @staticmethod
    def of(
        matmul: Matmul, topology: str | Topology | None, loop: str, among: tuple[str, ...] = WAYS
    ) -> _Search:
        """Return the search for a plan on a topology. Without a topology, candidates are ranked by
        bytes, and priced on the switch BYTES. Raise InputError as `plan_matmul` does."""
        found = topology if isinstance(topology, Topology) else topology_of(topology or BYTES)
        devices = 1 + max(matmul.mesh.device_ids)
        if matmul.mesh.size > MOST_DEVICES:
            raise InputError(
                "the mesh has too many devices to plan for",
                argument="mesh",
                got=f"{matmul.mesh.size} devices",
                expected=f"at most {MOST_DEVICES}",
            )
        check_devices(found, devices)
        check_multiplies(found, matmul.dtype)
        network = Network(found, devices)
        movements = Movements(network, by_bytes=topology is None)
        return _Search(matmul, network, movements, loop, among)

    @property
    def by_bytes(self) -> bool:
        return self.movements.by_bytes

    @property
    def overlaps(self) -> bool:
        """Whether candidates are ranked by seconds and devices can move parts while they
        multiply."""
        return not self.by_bytes and not is_processor(self.network.topology)

    @property
    def pulls(self) -> bool:
        """Whether candidates are ranked by seconds and kernels can pull parts."""
        return not self.by_bytes and reads_peers(self.network, self.matmul.mesh)

    def check_pulls(self) -> None:
        """Raise InputError if pulling kernels are requested but impossible."""
        if self.loop == "pulled" and not self.pulls:
            named = "no topology" if self.by_bytes else f"on {name_of(self.network.topology)}"
            raise InputError(
                "only devices that read each other's memory can pull",
                argument="loop",
                got=f"pulled, {named}",
                expected="a topology of GPUs of one host, such as h100:8",
            )

    def bounded(self) -> Iterator[_Bounded]:
        for each in multiplications(self.matmul):
            try:
                moves = tuple(each.movement(side) for side in SIDES)
            except InputError:  # sub-axes cannot coexist, or partial sums have different operators
                continue
            lhs, rhs, out = moves
            received = [self.movements.at_least(move) for move in moves]
            parts = self._product_seconds(each), sum(map(self.movements.least_seconds, moves))
            seconds = sum(parts) if self.loop == "never" else max(parts)
            rank = self._rank(sum(received), each.flops, seconds)
            yield _Bounded(each, (lhs, rhs, out), rank)

    def best(self, bounded: list[_Bounded]) -> MatmulCandidate:
        """Return the candidate with the lowest rank, given all candidates in the order of their
        bounds. Raise InputError if none has the requested loop."""
        best: tuple[Rank, MatmulCandidate] | None = None
        for each in bounded:
            if best is not None and each.rank >= best[0]:
                break
            for made in self.variants(each):
                rank = self.rank_of(made)
                if best is None or rank < best[0]:
                    best = rank, made
        if best is None:
            raise _no_loop(self.matmul, self.loop)
        return best[1]

    def variants(self, bounded: _Bounded) -> Iterator[MatmulCandidate]:
        """Yield the candidate without a loop, with each loop, and with a pulling kernel, where
        `loop` allows them."""
        plain, allowed = self.priced(bounded), self.allowed
        if self.loop in ("auto", "never", "pulled"):
            yield plain
        if "pulled" in allowed:
            yield from self.faster(plain)
        if not {*WAYS} & {*allowed}:
            return
        for each in looped(plain, self.network):
            assert each.loop is not None
            if WAYS[each.loop.directions - 1] in allowed:
                yield each

    @property
    def allowed(self) -> tuple[str, ...]:
        """The loops that candidates may have."""
        if self.loop != "auto":
            return (self.loop,)
        can = {"pulled": self.pulls}
        return tuple(way for way in self.among if can.get(way, self.overlaps))

    def faster(self, plain: MatmulCandidate) -> Iterator[MatmulCandidate]:
        found = pulled(plain, self.network)
        if found.cost.seconds < plain.cost.seconds:
            yield found

    def others(
        self, bounded: list[_Bounded], chosen: MatmulCandidate, count: int
    ) -> tuple[MatmulCandidate, ...]:
        """Return the `count` most promising candidates, best first, each of a different kind and
        none of the kind of the chosen candidate. If kernels can pull, add the chosen candidate with
        a pulling kernel, or without one if it has one."""
        taken = {each.kind for each in bounded if each.multiplication == chosen.multiplication}
        found: list[MatmulCandidate] = []
        if self.pulls and count:
            same = [each for each in bounded if each.multiplication == chosen.multiplication]
            plain = self.priced(same[0])
            found.append(plain if chosen.pulled else pulled(plain, self.network))
            count += 1
        for each in bounded:
            if each.kind not in taken and len(found) < count:
                taken.add(each.kind)
                found.append(self.priced(each))
        return tuple(sorted(found, key=self.rank_of))

    def priced(self, bounded: _Bounded) -> MatmulCandidate:
        lhs, rhs, out = map(self.movements.of, bounded.movements)
        product = bounded.multiplication
        cost = MatmulCost(
            product.flops,
            (lhs.received, rhs.received, out.received),
            busiest((lhs, rhs, out)),
            _touched(product),
            self._multiplying(product),
            self._touching(product),
            (lhs.seconds, rhs.seconds, out.seconds),
            launch=self.network.topology.launch + self.network.topology.kernel,
        )
        return MatmulCandidate(product, (lhs.plan, rhs.plan, out.plan), cost)

    def rank_of(self, candidate: MatmulCandidate) -> Rank:
        cost = candidate.cost
        return self._rank(sum(cost.received), cost.flops, cost.seconds)

    def _rank(self, received: int, flops: int, seconds: float) -> Rank:
        return (received, flops, seconds) if self.by_bytes else (seconds, received, flops)

    def _product_seconds(self, product: Multiplication) -> float:
        return max(self._multiplying(product), self._touching(product))

    def _multiplying(self, product: Multiplication) -> float:
        return product.flops / multiply_rate(self.network.topology, self.matmul.dtype)

    def _touching(self, product: Multiplication) -> float:
        memory = self.network.topology.memory
        return _touched(product) / memory if memory else 0.0


def _touched(product: Multiplication) -> int:
    return sum(
        math.prod(product.local_shape(side)) * itemsize(product.matmul.dtype_of(side))
        for side in SIDES
    )


def _no_loop(matmul: Matmul, loop: str) -> InputError:
    return InputError(
        "no all-gather of an operand or reduce-scatter of the result can run as this loop: the "
        "dimension that it gathers or scatters must divide evenly into its shards",
        argument="loop",
        got=f"{loop}, of lhs {matmul.lhs.sharding} and rhs {matmul.rhs.sharding} to {matmul.out}",
        expected='"auto" or "never"' + (', or "one"' if loop == "both" else ""),
    )
