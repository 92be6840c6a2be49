"""Run loaders on coded tensors to find the element at each position of each buffer.

Each element has a random code along each dimension, and each pass gives the loader one digit of one
code. Two rounds of passes use different codes. A moved value decodes to the same element in both
rounds; a scaled, rounded or averaged value does not. Digits are limited to integers that the
element type represents exactly, so narrow types take more passes. A position that has the same
value in every pass is padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.logical import Floats, LogicalTensor
from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.foreign import DTENSOR, TORCH_TENSOR, is_a

Load: TypeAlias = Callable[[int, dict[str, Any]], Mapping[str, Any]]
"""A loader. Given a device's id and the logical tensors by name, it returns the arrays that the
device stores, by buffer name."""

PADDED, COMPUTED = -1, -2
"""Stand-ins for a tensor's index. PADDED: the value depends on no tensor. COMPUTED: the value
depends on tensors but is not one of their elements."""

_EXACT = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e5m2": 3,
}
"""For each floating-point type, the largest number of bits whose integers it represents exactly."""
_MOST_BITS = 24
_LEAST_CODES = 2**16


@dataclass(frozen=True)
class HeldBuffer:
    """For each position of a buffer: the index of its tensor, `PADDED` or `COMPUTED`; the
    logical index [..., rank]; and the factor and offset applied to the element."""

    tensors: Integers
    index: Integers
    times: Floats
    plus: Floats
    computed: Floats  # a digest of the values at each position that has no element

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the buffer."""
        return tuple(self.tensors.shape)

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.tensors.size

    @property
    def has_elements(self) -> bool:
        """Whether any position has an element of a tensor."""
        return bool((self.tensors >= 0).any())

    def reshaped(self, shape: Sequence[int]) -> HeldBuffer:
        """Return the same elements, in C order, as a buffer of shape `shape`."""
        index = self.index.reshape(*shape, self.index.shape[-1])
        times, plus, computed = (
            each.reshape(shape) for each in (self.times, self.plus, self.computed)
        )
        return HeldBuffer(self.tensors.reshape(shape), index, times, plus, computed)

    def split(self, dim: int, length: int) -> HeldBuffer:
        """Split a dimension of the buffer in two; the second has extent `length`."""
        parts = (self.shape[dim] // length, length)
        return self.reshaped((*self.shape[:dim], *parts, *self.shape[dim + 1 :]))

    def row(self, place: int, dim: int) -> HeldBuffer:
        """Return the slice at a position along a dimension, as a buffer with extent 1 in that
        dimension."""
        each = (slice(None),) * dim + (slice(place, place + 1),)
        others = (getattr(self, name)[each] for name in ("times", "plus", "computed"))
        return HeldBuffer(self.tensors[each], self.index[each], *others)

    def same(self, other: HeldBuffer) -> npt.NDArray[np.bool_]:
        """Return, for each position, whether two buffers of the same shape agree."""
        pairs = ((getattr(side, name) for side in (self, other))
                 for name in ("tensors", "times", "plus", "computed"))  # fmt: skip
        equal: npt.NDArray[np.bool_] = (self.index == other.index).all(axis=-1)
        for a, b in pairs:
            equal = equal & (a == b)
        return equal

    @property
    def is_moved(self) -> bool:
        """Whether every value is an unchanged element, or padding."""
        return bool(
            (self.tensors != COMPUTED).all() and (self.times == 1).all() and (self.plus == 0).all()
        )


Buffers: TypeAlias = dict[str, HeldBuffer]
"""The buffers of a device by name."""


def probe(
    load: Load, tensors: Mapping[str, LogicalTensor], devices: Sequence[int], dtype: str
) -> dict[int, Buffers]:
    """Return the buffers that a loader returns on each device, by device id and buffer name.

    Raises InputError for a loader that does not return a dict of arrays, or whose shapes differ
    between passes.
    """
    codes = Codes.of(tensors, dtype)
    return {device: probed(load, tensors, device, codes) for device in devices}


def probed(
    load: Load,
    tensors: Mapping[str, LogicalTensor],
    device: int,
    codes: Codes,
    together: bool = False,
    take: Callable[[dict[str, Floats]], dict[str, Floats]] = dict,
) -> Buffers:
    """Return the buffers that a loader returns on a device.

    `together`: make the last two passes even if this device does not need them, because other
    devices may. `take` selects the values of a pass to keep.
    """

    def run(values: Mapping[str, Any]) -> dict[str, Floats]:
        return take(run_loader(load, tensors, device, values, codes.base))

    passes = [run(values) for values in codes.passes()]
    for other in passes[1:]:
        for name in {*passes[0], *other}:
            shapes = [each[name].shape if name in each else "none" for each in (passes[0], other)]
            if shapes[0] != shapes[1]:
                raise InputError(
                    "a loader must return the same buffers whatever the values",
                    argument="load",
                    got=f"{name} of rank {device}: {shapes[0]}, then {shapes[1]}",
                    expected="one shape for each rank and buffer",
                )
    found = {name: codes.decoded([each[name] for each in passes]) for name in passes[0]}
    if not together and all(each.is_moved for each in found.values()):
        return found
    constants = ({name: np.float64(value) for name in tensors} for value in (0, 1))
    zeros, ones = map(run, constants)
    for name, each in found.items():
        if not each.is_moved:
            values = [passed[name] for passed in passes]
            found[name] = _affine(each, codes, values, zeros[name], ones[name])
    return found


def _affine(
    held: HeldBuffer, codes: Codes, passes: list[Floats], zero: Floats, one: Floats
) -> HeldBuffer:
    """Replace computed values of a buffer by an element, a factor and an offset where they equal
    `times * element + plus`."""
    times = np.where(np.isfinite(one - zero) & (one != zero), one - zero, 1.0)
    plus = np.where(np.isfinite(zero), zero, 0.0)
    undone = codes.decoded([np.rint((values - plus) / times) for values in passes])
    exact = np.all([values == np.rint((values - plus) / times) * times + plus
                    for values in passes], axis=0)  # fmt: skip
    known = (held.tensors == COMPUTED) & (undone.tensors >= 0) & exact
    return HeldBuffer(
        np.where(known, undone.tensors, held.tensors),
        np.where(known[..., None], undone.index, held.index),
        np.where(known, times, 1.0),
        np.where(known, plus, 0.0),
        np.where(known, 0.0, held.computed),
    )


def run_loader(
    load: Load,
    tensors: Mapping[str, LogicalTensor],
    device: int,
    values: Mapping[str, Any],
    base: int = 0,
) -> dict[str, Floats]:
    """Return a loader's buffers on a device, given values of the tensors. Raise InputError for a
    buffer whose type cannot represent all integers below `base`."""
    given = {name: each.filled(values[name]) for name, each in tensors.items()}
    try:
        returned = load(device, given)
    except Exception as error:
        error.add_note(f"while the loader ran for rank {device} on tensors of test numbers")
        raise
    if not isinstance(returned, Mapping) or not all(isinstance(name, str) for name in returned):
        got = [*returned] if isinstance(returned, Mapping) else returned
        raise InputError(
            "a loader must return a dict from buffer names to arrays",
            argument="load",
            got=f"{in_a_line(got)} on rank {device}",
            expected='a dict, for example {"qkv": array}',
        )
    return {name: _array(name, each, base) for name, each in returned.items()}


def _array(name: str, given: Any, base: int) -> Floats:
    if is_a(given, DTENSOR):
        given = given.to_local()
    narrow = _name_of_type(given)
    if narrow in _EXACT and 2 ** _EXACT[narrow] < base:
        raise InputError(
            "dtype must be the narrowest element type that the loader converts to",
            argument=f"load, buffer {name!r}",
            got=f"a buffer of {narrow}, which rounds the loader's tensors",
            expected=f'dtype="{narrow}", on the command line --dtype {narrow}',
        )
    if narrow.startswith("complex"):
        raise InputError(
            "a buffer must have real values",
            argument=f"load, buffer {name!r}",
            got=narrow,
            expected="two buffers, of its real and its imaginary parts",
        )
    if is_a(given, TORCH_TENSOR) and given.device.type != "meta":
        given = given.detach().double().cpu().numpy()
    try:
        return np.asarray(given).astype(np.float64)
    except (TypeError, ValueError, NotImplementedError):
        raise InputError(
            "a buffer must be an array, or a tensor that has values",
            argument=f"load, buffer {name!r}",
            got=in_a_line(given),
            expected="a numpy or jax array, or a torch tensor",
        ) from None


def _name_of_type(given: Any) -> str:
    return str(getattr(given, "dtype", "")).removeprefix("torch.")


@dataclass(frozen=True)
class Codes:
    """Random codes of elements along each dimension, for two rounds. `base`: the base of the codes'
    digits."""

    starts: tuple[dict[str, int], ...]  # for each dimension, the first index of each tensor
    shapes: dict[str, tuple[int, ...]]
    base: int
    digits: int
    codes: tuple[tuple[Integers, ...], ...]  # by round and dimension, the code of each index

    @staticmethod
    def of(tensors: Mapping[str, LogicalTensor], dtype: str) -> Codes:
        """Return codes whose digits the type represents exactly."""
        shapes = {name: each.shape for name, each in tensors.items()}
        rank = max(1, *map(len, shapes.values()))
        starts, counts = [], []
        for dim in range(rank):
            ends = [0, *itertools.accumulate(_extent(shape, dim) for shape in shapes.values())]
            starts.append(dict(zip(shapes, ends, strict=False)))
            counts.append(ends[-1])
        base = _base(dtype)
        digits = 1
        while base**digits < max(4 * max(counts), _LEAST_CODES):
            digits += 1
        rng = np.random.default_rng(0)
        codes = tuple(
            tuple(_distinct(rng, count, base**digits) for count in counts) for _ in range(2)
        )
        return Codes(tuple(starts), shapes, base, digits, codes)

    def passes(self) -> Iterator[dict[str, Floats]]:
        """Yield the values of each pass, which broadcast to the shapes of the tensors."""
        for _, _, values in self.passes_along():
            yield values

    def passes_along(self) -> Iterator[tuple[int, Floats, dict[str, Floats]]]:
        """Yield, for each pass, its dimension, the value of each index along this dimension, and
        the values of the tensors."""
        for codes in self.codes:
            for dim, line in enumerate(codes):
                for place in range(self.digits):
                    values = 1.0 + line // self.base**place % self.base
                    yield (
                        dim,
                        values,
                        {
                            name: self._along(dim, name, shape, values)
                            for name, shape in self.shapes.items()
                        },
                    )

    def _along(self, dim: int, name: str, shape: tuple[int, ...], values: Floats) -> Floats:
        start = self.starts[dim][name]
        found = values[start : start + _extent(shape, dim)]
        sides = [-1 if each == dim else 1 for each in range(len(shape))]
        return found.reshape(sides if dim < len(shape) else ())

    def decoded(self, passes: Sequence[Floats]) -> HeldBuffer:
        """Return the element at each position, given its value in each pass."""
        shape, rank = passes[0].shape, len(self.starts)
        values = iter(passes)
        numbers = np.empty((2, rank, *shape), dtype=np.int64)
        for round_, codes in enumerate(self.codes):
            for dim, line in enumerate(codes):
                digits = list(itertools.islice(values, self.digits))
                numbers[round_, dim] = self._numbers(digits, line)
        moved = (numbers[0] == numbers[1]).all(axis=0) & (numbers[0] >= 0).all(axis=0)
        tensors = np.full(shape, COMPUTED, dtype=np.int64)
        index = np.zeros((*shape, rank), dtype=np.int64)
        for which, (name, extents) in enumerate(self.shapes.items()):
            inside = moved.copy()
            for dim, starts in enumerate(self.starts):
                place = numbers[0, dim] - starts[name]
                inside &= (place >= 0) & (place < _extent(extents, dim))
            tensors[inside] = which
            for dim, starts in enumerate(self.starts):
                index[inside, dim] = numbers[0, dim][inside] - starts[name]
        first = passes[0]
        same = [(first == each) | np.isnan(first) & np.isnan(each) for each in passes]
        tensors[np.all(same, axis=0)] = PADDED
        computed = np.zeros(shape)
        if (tensors == COMPUTED).any():
            weights = np.arange(1.0, 1 + len(passes)) / 7
            digest = np.tensordot(weights, np.nan_to_num(np.stack(passes)), axes=1)
            computed = np.where(tensors == COMPUTED, digest, 0.0)
        return HeldBuffer(tensors, index, np.ones(shape), np.zeros(shape), computed)

    def _numbers(self, digits: list[Floats], line: Integers) -> Integers:
        """Return, at each position, the index whose code has these digits; -1 if there is none."""
        code = np.zeros(digits[0].shape, dtype=np.int64)
        valid = np.ones(code.shape, dtype=np.bool_)
        for place, values in enumerate(digits):
            valid &= (values >= 1) & (values <= self.base) & (values == np.floor(values))
            code += np.where(valid, values - 1, 0).astype(np.int64) * self.base**place
        order = np.argsort(line)
        found = order[np.minimum(np.searchsorted(line[order], code), line.size - 1)]
        return np.where(valid & (line[found] == code), found, -1)


def _extent(shape: tuple[int, ...], dim: int) -> int:
    return shape[dim] if dim < len(shape) else 1


def _base(dtype: str) -> int:
    """Return the largest integer up to which a type represents all integers, at most 2**24. Raises
    InputError for bool."""
    if dtype in _EXACT:
        return int(2 ** min(_EXACT[dtype], _MOST_BITS))
    if dtype == "bool":
        raise InputError(
            "booleans cannot tell elements apart",
            argument="dtype",
            got=dtype,
            expected="tensors of int8 or wider for the loader",
        )
    return int(min(np.iinfo(dtype).max, 2**_MOST_BITS))


def _distinct(rng: np.random.Generator, count: int, below: int) -> Integers:
    found = np.zeros(0, dtype=np.int64)
    while found.size < count:
        found = np.unique(np.concatenate([found, rng.integers(0, below, 2 * count)]))
    return rng.permutation(found)[:count]
