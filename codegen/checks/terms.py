"""Inputs for modules that move or reduce partial sums, with results that are known bit by bit."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import Run
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.checks.oracle.definition import Bits, Placement
from shardwright.codegen.checks.oracle.sums import Numbers

BitsOf = Callable[[Numbers, str], Bits]
"""Converts numbers to the bits of a dtype, using a backend's framework."""


def runs(case: Case, bits_of: BitsOf) -> Iterator[Run]:
    """Yield the runs of a case: the bit planes of `compare.runs` or, if terms are reduced, planes
    whose reductions are exact."""
    if not case.source.unreduced and not case.target.unreduced:
        yield from compare.runs(case)
    elif not reduces(case):
        yield from _moved(case, bits_of)
    else:
        yield from _reduced(case, bits_of)


def reduces(case: Case) -> bool:
    """Return whether a target value is reduced from several partial sums."""
    return max(map(len, made_of(case))) > 1


def made_of(case: Case) -> tuple[tuple[int, ...], ...]:
    """Return, for every target term, the indices of the source terms that form it; an empty
    tuple for a term without a value."""
    return oracle_terms.made_of(case.source, case.target, transposed=case.transposed)


def without_value(case: Case) -> frozenset[int]:
    """Return the devices whose target term has no value, because no source term forms it."""
    made, held = made_of(case), oracle_terms.terms_held(case.target)
    return frozenset(device for device, term in held.items() if not made[term])


def cotangent_back(case: Case, cotangent: Bits) -> Bits:
    """Return the cotangent of the source: every source term has the cotangent of the target term
    to which it contributes."""
    terms = oracle_terms.target_of_terms(case.source, case.target)
    back: Bits = cotangent.reshape(-1, *case.shape)[list(terms)]
    return back.reshape(case.source_shape)


def own_terms(side: Placement, array: Placement, tensor: Bits) -> dict[int, Bits]:
    """Return every device's shard of a tensor. If `side` is a partial sum, `tensor` is the array of
    its terms, and the shards are returned without the dimension of terms."""
    found = oracle.shards(array, tensor)
    if not side.unreduced:
        return found
    return {device: shard.reshape(shard.shape[1:]) for device, shard in found.items()}


def _moved(case: Case, bits_of: BitsOf) -> Iterator[Run]:
    """Yield the runs of a case without reduction: every target term is a source term or has no
    value."""
    for run in compare.runs(dataclasses.replace(case, shape=case.source_shape)):
        given = run.tensor.reshape(-1, *case.shape)
        made = [given[of[0]] if of else _empty(case, bits_of) for of in made_of(case)]
        tensor = np.stack(made).reshape(case.target_shape)
        yield dataclasses.replace(run, tensor=tensor, source=run.tensor)


def _reduced(case: Case, bits_of: BitsOf) -> Iterator[Run]:
    fills, of_target = oracle.fills(case.dtype), made_of(case)
    full = [number for number, of in enumerate(of_target) if of]
    parts = [full.index(term) for term in oracle_terms.target_of_terms(case.source, case.target)]
    planes = oracle_terms.reductions(case.shape, case.dtype, parts, case.source.operator)
    for plane, (terms, values) in enumerate(planes):
        given, made = (bits_of(each, case.dtype) for each in (terms, values))
        every = [
            made[full.index(n)] if of else _empty(case, bits_of) for n, of in enumerate(of_target)
        ]
        tensor = np.stack(every).reshape(case.target_shape)
        yield Run(tensor, plane, plane % 2, fills[plane % 2], given)


def _empty(case: Case, bits_of: BitsOf) -> Bits:
    """Return the value of a term that no source term forms: the operator's identity."""
    identity = oracle_terms.identity(case.dtype, case.target.operator)
    return bits_of(np.full(case.shape, identity), case.dtype)


def random_terms(case: Case) -> Numbers:
    """Return a source array of random terms of a floating-point dtype, with both signs and
    widely varying magnitudes, whose sums do not overflow."""
    rng = np.random.default_rng(zlib.crc32(repr((case.shape, case.source, case.target)).encode()))
    scale = 2.0 ** rng.integers(-4, 3, (oracle_terms.terms_of(case.source), *case.shape))
    terms: Numbers = (rng.uniform(-1, 1, scale.shape) * scale).reshape(case.source_shape)
    return terms


def added_in_order(case: Case, terms: Numbers) -> Numbers:
    """Return the target array of sums, added in the dtype of `terms` and in the order of the
    terms."""
    stacked = terms.reshape(-1, *case.shape)
    sums = []
    for of in made_of(case):
        if not of:
            value = oracle_terms.identity(case.dtype, case.target.operator)
            sums.append(np.full(case.shape, value, terms.dtype))
            continue
        total = stacked[of[0]]
        for number in of[1:]:
            total = total + stacked[number]
        sums.append(total)
    array: Numbers = np.stack(sums).reshape(case.target_shape)
    return array


def sums_within_bound(
    case: Case, terms: Numbers, got: Mapping[int, Numbers], *, rounds_each: bool = False
) -> None:
    """Raise MismatchError unless the devices' sums are within the error bound and equal on
    replicas. `terms`: the source array, as float64; `rounds_each`: whether narrow floats may be
    rounded after each addition."""
    stacked = terms.reshape(-1, *case.shape).astype(np.longdouble)
    made = [stacked[list(of)] for of in made_of(case)]
    sums = np.stack([each.sum(axis=0) for each in made])
    bounds = np.stack(
        [oracle_terms.bound(each, case.dtype, rounds_each=rounds_each) for each in made]
    )
    held = oracle_terms.terms_held(case.target)
    alike: dict[str, int] = {}
    for device, indices in oracle.holdings(case.target, case.shape).items():
        here = np.ix_(*indices) if indices else ()
        exact, most = sums[held[device]][here], bounds[held[device]][here]
        if not made_of(case)[held[device]]:
            continue  # this term has no value; the exact runs have already compared it
        wrong = np.argwhere(~(np.abs(got[device] - exact) <= most))
        if len(wrong):
            at = tuple(wrong[0])
            raise compare.MismatchError(
                f"device {device}: {len(wrong)} sums are beyond their bound; element "
                f"{[int(index) for index in at]}: got: {float(got[device][at])!r}, "
                f"expected: {float(exact[at])!r}, at most {float(most[at]):.3g} off"
            )
        other = alike.setdefault(repr((held[device], indices)), device)
        if not np.array_equal(got[other], got[device]):
            raise compare.MismatchError(f"devices {other} and {device} have different sums")
