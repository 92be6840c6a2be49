"""The values that shards have in successive calls. Imported only by workers."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shardwright.codegen.backends.triton_gpu.verify.bits import as_bits
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import Run
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Bits
from shardwright.codegen.checks.terms import cotangent_back, own_terms, runs

RANDOM = 3
"""The number of calls, after those that move bit planes, that move new random bits."""


class Values:
    """The values of shards before and after each call of a case, by the number of the call.

    Successive calls move different values, so leftovers of one call are wrong in the next."""

    def __init__(self, case: Case, planes: Sequence[Run]) -> None:
        self.case = case
        self._runs = list({run.plane: run for run in planes}.values())
        if not case.source.unreduced and not case.target.unreduced:
            random = (oracle.random_bits(case.shape, case.dtype, seed) for seed in range(RANDOM))
            self._runs += [Run(tensor, 0, 0, 0) for tensor in random]
        self._shards = functools.cache(self._shards_of)

    @staticmethod
    def of(case: Case) -> Values:
        """Return the values for a case that is not a member of a group."""
        return Values(case, list(runs(case, as_bits)))

    def whole(self, call: int) -> Bits:
        """Return the tensor after a call or, if the target is unreduced, the array of its terms."""
        return self._runs[call % len(self._runs)].tensor

    def given(self, call: int) -> dict[int, Bits]:
        return self._shards(call % len(self._runs))[0]

    def wanted(self, call: int) -> dict[int, Bits]:
        return self._shards(call % len(self._runs))[1]

    def cotangents(self, call: int) -> tuple[Bits, dict[int, Bits]]:
        """Return the source's cotangent, given a target cotangent equal to the call's `whole`, and
        its shards by device."""
        back = cotangent_back(self.case, self.whole(call))
        return back, own_terms(self.case.source, self.case.source_array, back)

    def _shards_of(self, run: int) -> tuple[dict[int, Bits], dict[int, Bits]]:
        case, made = self.case, self._runs[run]
        return (
            own_terms(case.source, case.source_array, made.given),
            own_terms(case.target, case.target_array, made.tensor),
        )
