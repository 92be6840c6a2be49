"""Comparisons shared by all workers: constants, index functions, values. All are bitwise."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from shardwright.codegen import registry
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.checks.oracle.definition import Bits, Placement


class MismatchError(Exception):
    """Raised for a wrong module; the message states the fault in one line.

    `fresh`: whether the worker process must be replaced, because its state is unknown.
    """

    def __init__(self, text: str, *, fresh: bool = False) -> None:
        super().__init__(text)
        self.fresh = fresh


@contextmanager
def said_of(what: str) -> Iterator[None]:
    """Prefix the message of a MismatchError raised in this context with `what`."""
    try:
        yield
    except MismatchError as error:
        raise MismatchError(f"{what}: {error}", fresh=error.fresh) from error


def expect(name: str, got: object, expected: object) -> None:
    """Raise MismatchError, with `name` as its subject, unless `got` equals `expected`."""
    if got != expected:
        raise MismatchError(f"{name}: got: {got!r}, expected: {expected!r}")


def require(holds: bool, fault: str) -> None:
    """Raise MismatchError with the message `fault` unless `holds` is true."""
    if not holds:
        raise MismatchError(fault)


def constants(module: ModuleType, case: Case) -> None:
    """Check the constants and shape functions that every module must have against the
    description and the oracle."""
    for name in named(module, "__all__"):
        named(module, name)
    expect("SHAPE", tuple(named(module, "SHAPE")), case.shape)
    expect("DTYPE", named(module, "DTYPE"), case.dtype)
    for name, text in case.texts:
        expect(name, named(module, name), text)
    for side, placement, array in _sides(case):
        local = f"LOCAL_{side.upper()}_SHAPE"
        expect(local, tuple(named(module, local)), oracle.largest(placement, array))
        shape_of = named(module, f"{side}_shape")
        for device, indices in oracle.holdings(placement, array).items():
            shape = tuple(len(along) for along in indices)
            expect(f"{side}_shape({device})", tuple(shape_of(device)), shape)


def names(module: ModuleType, wanted: Iterable[str]) -> None:
    """Raise MismatchError if a name of the contract is missing."""
    for name in wanted:
        named(module, name)


def index_functions(module: ModuleType, case: Case) -> None:
    """Compare `source_box` and `target_box` with the oracle at every position of their meshes."""
    for side, placement, array in _sides(case):
        box: Callable[[int], Sequence[int]] = named(module, f"{side}_box")
        held = oracle.holdings(placement, array)
        hidden = 0
        if not _stacks_terms(case):
            phase = named(module, "_HOST").phases[0 if side == "source" else -1]
            hidden = len(phase.exchange.hidden)
        terms: dict[int, tuple[range, ...]] = {}
        for position, device in enumerate(placement.device_ids):
            bounds = tuple(int(bound) for bound in box(position))
            ranges = tuple(
                range(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=True)
            )
            terms[device], got = ranges[:hidden], ranges[hidden:]
            # A module may treat a scalar as a vector of one element. Ranges are equal if they
            # contain the same indices, so all empty ones are equal.
            expected = held[device] or (range(1),) * len(got)
            expect(f"{side}_box({position}), device {device}", got, expected)
        if hidden:
            held_terms = oracle_terms.terms_held(placement)
            if case.transposed and side == "target":  # copies of one term are equal
                made = oracle_terms.made_of(case.source, case.target, transposed=True)
                held_terms = {device: made[term][0] for device, term in held_terms.items()}
            _same_terms(side, terms, held_terms)


def _same_terms(side: str, ranges: Mapping[int, tuple[range, ...]], held: dict[int, int]) -> None:
    found = {held[device]: ranges[device] for device in ranges}
    for device in ranges:
        expect(f"{side}_box, terms of device {device}", ranges[device], found[held[device]])
    if len({*found.values()}) < len(found):
        raise MismatchError(f"{side}_box: devices with different terms have the same ranges")


@dataclass(frozen=True)
class Run:
    """One execution of a module.

    `tensor`: the tensor that the result must represent; `plane`: the index of its bit plane;
    `poison`: 0 or 1, the pattern that fills memory that must not be read; `fill`: the bits in the
    padding of the input; `source`: the module's input if it is not `tensor`, as for partial sums.
    """

    tensor: Bits
    plane: int
    poison: int
    fill: int
    source: Bits | None = None

    @property
    def given(self) -> Bits:
        """The module's input."""
        return self.tensor if self.source is None else self.source


def runs_of_each(cases: Sequence[Case]) -> list[list[Run]]:
    """Return the runs of each tensor of a group. The planes of tensors of the same shape and
    dtype are shifted by different numbers of elements, so that no tensor can be mistaken for
    another."""
    found: list[list[Run]] = []
    alike: Counter[tuple[tuple[int, ...], str]] = Counter()
    for case in cases:
        by = alike[case.shape, case.dtype]
        alike[case.shape, case.dtype] += 1
        found.append([replace(run, tensor=np.roll(run.tensor, by)) for run in runs(case)])
    return found


def runs(case: Case) -> Iterator[Run]:
    """Yield every bit plane once, and the first a second time with the other poison and fill; then
    yield random bits.

    Planes distinguish elements; random bits check that every pattern arrives unchanged.
    """
    fills, plane = oracle.fills(case.dtype), 0
    for plane, tensor in enumerate(oracle.planes(case.shape, case.dtype)):
        yield Run(tensor, plane, 0, fills[plane % 2])
        if plane == 0:
            yield Run(tensor, plane, 1, fills[1])
    seed = zlib.crc32(repr((case.shape, case.dtype, case.source, case.target)).encode())
    yield Run(oracle.random_bits(case.shape, case.dtype, seed), plane + 1, 0, fills[0])


def results(run: Run, got: Mapping[int, Bits], expected: Mapping[int, Bits]) -> None:
    """Compare every device's result, bit by bit."""
    expect("devices with a result", sorted(got), sorted(expected))
    for device in sorted(expected):
        same_bits(f"device {device}", got[device], expected[device], run.tensor)


def states(
    got: Mapping[int, Mapping[str, Bits]],
    expected: Mapping[int, Mapping[str, Bits]],
    padding: int = 0,
) -> None:
    """Raise MismatchError unless every device has the expected buffers, with `padding` beyond their
    ends."""
    expect("devices", sorted(got), sorted(expected))
    for device, buffers in expected.items():
        expect(f"buffers of device {device}", sorted(got[device]), sorted(buffers))
        for name, wanted in buffers.items():
            found = got[device][name]
            padded = np.full(found.shape, padding, found.dtype)
            if wanted.size:  # the shape of a buffer without elements is arbitrary
                padded[tuple(map(slice, wanted.shape))] = wanted
            same_bits(f"device {device}, buffer {name}", found, padded, wanted)


def same_bits(name: str, got: Bits, expected: Bits, tensor: Bits) -> None:
    """Raise MismatchError for the first wrong element; the message names the element of `tensor`
    with that value."""
    expect(f"{name}: shape of the result", got.shape, expected.shape)
    wrong = np.argwhere(got != expected)
    if len(wrong):
        at = tuple(int(index) for index in wrong[0])
        raise MismatchError(
            f"{name}: {len(wrong)} of {got.size} elements are wrong; element {_tuple(at)}: "
            f"got: {_element(got[at], tensor)}, expected: {_element(expected[at], tensor)}"
        )


def _element(bits: np.unsignedinteger, tensor: Bits) -> str:
    """Name the tensor element with this value if it is unique; otherwise return the bits."""
    where = np.argwhere(tensor == bits)
    if len(where) == 1:
        return f"t{[int(index) for index in where[0]]}"
    return f"bits {int(bits):#0{2 * bits.itemsize + 2}x}"


def _tuple(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]"


def _stacks_terms(case: Case) -> bool:
    return registry.contract(case.backend).stacks_terms


def _sides(case: Case) -> tuple[tuple[str, Placement, tuple[int, ...]], ...]:
    if not _stacks_terms(case):
        return ("source", case.source, case.shape), ("target", case.target, case.shape)
    return (
        ("source", case.source_array, case.source_shape),
        ("target", case.target_array, case.target_shape),
    )


def named(module: ModuleType, name: str) -> Any:
    """Return an attribute of the module. Raise MismatchError if it is missing."""
    try:
        return getattr(module, name)
    except AttributeError:
        raise MismatchError(f"the module has no {name}") from None
