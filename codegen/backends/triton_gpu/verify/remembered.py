"""Check calls in which some ranks pass tensors that they have passed before and others pass new
tensors, also after changes to shared memory. Imported only by workers.

For tensors used before, a rank takes the transport that it remembers. Other ranks choose the same
transport only if remembered facts are dropped whenever something on which they depend changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shardwright.codegen.backends.triton_gpu.verify.calls import CallerTensors, judged, written
from shardwright.codegen.backends.triton_gpu.verify.ranks import Gpu, Rank, Ranks
from shardwright.codegen.backends.triton_gpu.verify.stand_ins import StandIns, modules_beside
from shardwright.codegen.backends.triton_gpu.verify.values import Values
from shardwright.codegen.checks.compare import MismatchError

MORE = 1 << 12
"""The additional bytes of shared memory that a module with larger shards needs."""


class MixedCall(NamedTuple):
    """A call by all ranks. `even`, `odd`: the names of the source shard and of the result on even
    and on odd ranks; the module allocates a result named "new"; `before`: an action of all ranks
    before the call, or ""."""

    even: tuple[str, str]
    odd: tuple[str, str]
    before: str = ""


def _alike(shard: str, out: str, before: str = "") -> MixedCall:
    return MixedCall((shard, out), (shard, out), before)


EXCHANGED = (
    _alike("a", "a"),
    _alike("a", "a"),
    MixedCall(("a", "a"), ("b", "b")),
    MixedCall(("b", "new"), ("a", "a")),
)
PULLED = (
    *EXCHANGED,
    MixedCall(("a", "a"), ("c", "c"), "another module needs more memory"),
    MixedCall(("a", "a"), ("kept", "d"), "the module has memory for source shards"),
    _alike("kept", "kept"),
)
OFFERED = (
    _alike("b", "b"),
    MixedCall(("b", "b"), ("b", "c"), "source shards are offered"),
    MixedCall(("b", "b"), ("b", "c")),
)
PUSHED = (
    _alike("b", "b"),
    MixedCall(("b", "b"), ("c", "b"), "results are offered"),
    MixedCall(("c", "b"), ("b", "b")),
    _alike("a", "kept", "the module has memory for results"),
)


def check_remembered(module: Any, values: Values, *, noted: bool) -> None:
    """Make the calls of each script that a module supports, with new ranks for each. Raises
    MismatchError."""
    host = module._HOST
    check_script(module, values, EXCHANGED, "exchange", noted=noted)
    if "symmetric_source" not in module.__all__:
        check_script(module, values, EXCHANGED, "symmetric", noted=noted)
        return
    check_script(module, values, PULLED, "symmetric", noted=noted)
    if {*host.exchange.source.ids} == {*host.exchange.ranks}:
        check_script(module, values, OFFERED, "symmetric", noted=noted)
    if "push" in host.phases[-1].features:
        check_script(module, values, PUSHED, "symmetric", noted=noted)
    else:
        _check_refused(module)


def _check_refused(module: Any) -> None:
    """Raise MismatchError unless a module without pushing refuses to share memory for results."""
    try:
        module.symmetric_result()
    except ValueError:
        return
    raise MismatchError("symmetric_result: raises no error for a reshard that cannot use it")


def check_script(
    module: Any, values: Values, script: tuple[MixedCall, ...], transport: str, *, noted: bool
) -> None:
    """Make the calls of a script on all ranks. Raises MismatchError."""
    ranks = Ranks(len(module._HOST.exchange.ranks), noted=noted)
    with StandIns(ranks, on_gpus=True).of(module):
        ranks.run(lambda rank: _Remembering(module, values, rank, transport).make(script))


class _Remembering:
    def __init__(self, module: Any, values: Values, rank: Rank, transport: str) -> None:
        self._module, self._values, self._rank = module, values, rank
        self._transport, shards = transport, CallerTensors(module._HOST, rank)
        self._sources = {name: shards.source() for name in "abc"}
        self._results = {name: shards.result() for name in "abcd"} | {"new": None}

    def make(self, script: tuple[MixedCall, ...]) -> None:
        for number, turn in enumerate(script):
            self._before(turn.before)
            shard, out = turn.odd if self._rank.number % 2 else turn.even
            self._call(number, shard, out)

    def _call(self, number: int, shard: str, out: str) -> None:
        rank, given = self._rank, self._sources[shard]
        written(rank, given, self._values, number)
        made = self._module.reshard(given, rank, out=self._results[out], transport=self._transport)
        judged(rank, made, self._values, number)

    def _before(self, what: str) -> None:
        module, rank = self._module, self._rank
        match what:
            case "another module needs more memory":
                _grow(module, rank)
            case "the module has memory for source shards":
                self._sources["kept"] = module.symmetric_source(rank)
                self._results["kept"] = self._results["a"]
            case "source shards are offered":
                module.symmetric_source(rank, self._sources["b"])
            case "results are offered":
                module.symmetric_result(rank, self._results["b"])
            case "the module has memory for results":
                self._results["kept"] = module.symmetric_result(rank)


def _grow(module: Any, rank: Rank) -> None:
    inside = modules_beside(module)
    shared = next(vars(each)["shared"] for each in inside if "shared" in vars(each))
    place = shared(rank).workspace
    shared(rank).grown(MORE + (0 if place is None else len(place.held)), Gpu(), rank)
