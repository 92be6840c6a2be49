"""A relayout's module to verify, as plain data, and the values that the oracle expects."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwright.codegen.checks.compare import same_bits
from shardwright.codegen.checks.oracle.definition import Bits
from shardwright.codegen.checks.oracle.layouts import (
    PADDING,
    BufferSaid,
    CutSaid,
    Numbers,
    PartSaid,
    stored_numbers,
)
from shardwright.ir.dtypes import itemsize

if TYPE_CHECKING:  # only for annotations: a worker handles plain data
    from shardwright.ir.dim_cuts import DimCut
    from shardwright.ir.parts import BufferLayout, TensorPart
    from shardwright.ir.relayout import Relayout
    from shardwright.ir.stored import Stored

Held = Mapping[str, Mapping[int, Bits]]
"""The contents of buffers on devices, by buffer name and device id."""


@dataclass(frozen=True)
class StoredSaid:
    """A stored layout in the oracle's form."""

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...]
    buffers: tuple[tuple[str, BufferSaid], ...]

    @staticmethod
    def of(stored: Stored) -> StoredSaid:
        """Convert a stored layout to this form."""
        return StoredSaid(
            tuple(stored.mesh.axes),
            tuple(stored.mesh.device_ids),
            tuple(
                (name, _buffer_said(each, stored.tensors)) for name, each in stored.buffers.items()
            ),
        )

    def numbers(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, dict[int, Numbers]]:
        """Return the indices of the elements that devices store, by buffer name and device id."""
        given = self.axes, self.device_ids, shapes
        return {name: stored_numbers(*given, each) for name, each in self.buffers}


@dataclass(frozen=True)
class RelayoutCase:
    """An emitted module and the relayout that it claims to perform. `execute`: whether to run
    the module; if False, only its tables are checked."""

    name: str
    backend: str
    module: Path
    dtype: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    source: StoredSaid
    target: StoredSaid
    execute: bool = True

    @staticmethod
    def of(
        relayout: Relayout, name: str, backend: str, module: Path, execute: bool = True
    ) -> RelayoutCase:
        """Return the case of a relayout whose module is the file `module`."""
        source, target = relayout.source.in_bytes, relayout.target.in_bytes
        sides = StoredSaid.of(source), StoredSaid.of(target)
        tensors = tuple(source.tensors.items())
        return RelayoutCase(name, backend, module, source.dtype, tensors, *sides, execute)

    def devices(self) -> tuple[int, ...]:
        """Return all device ids of both meshes, ascending."""
        return tuple(sorted({*self.source.device_ids, *self.target.device_ids}))

    def to_json(self) -> str:
        """Return one line of JSON; `from_data` reads its contents."""
        return json.dumps({**dataclasses.asdict(self), "module": str(self.module)})

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> RelayoutCase:
        """Return the case in parsed JSON."""
        tensors = tuple((name, tuple(shape)) for name, shape in data["tensors"])
        sides = stored_from(data["source"]), stored_from(data["target"])
        given = data["name"], data["backend"], Path(data["module"]), data["dtype"]
        return RelayoutCase(*given, tensors, *sides, data["execute"])

    def runs(self) -> Iterator[tuple[Held, Held]]:
        """Yield pairs of states as bits: before the relayout, and expected after it.

        In each pair but the last, the value of an element is one digit of its number, so all pairs
        together distinguish the elements; in the last pair all bits are random. Padding is random
        before and zero after.
        """
        shapes, width = dict(self.tensors), 8 * itemsize(self.dtype)
        count = sum(math.prod(shape) for shape in shapes.values())
        bits = np.dtype(f"uint{width}")
        radix = 2 if self.dtype == "bool" else 1 << width
        digit = min(radix, 1 << 32)
        random = np.random.default_rng(count)
        before, after = self.source.numbers(shapes), self.target.numbers(shapes)
        least, weight = np.arange(count), 1
        while weight < max(count, 2):
            values = (least // weight % digit).astype(bits)
            yield filled_held(before, values, random, radix), filled_held(after, values)
            weight *= digit
        values = random.integers(0, radix, count, bits, endpoint=False)
        yield filled_held(before, values, random, radix), filled_held(after, values)

    def received(self) -> int:
        """Return the bytes that the busiest device must receive: each missing element once."""
        before, after = (
            _held_by_device(side.numbers(dict(self.tensors))) for side in (self.source, self.target)
        )
        lacked = (len(held - before.get(device, set())) for device, held in after.items())
        return max(lacked, default=0) * itemsize(self.dtype)

    def padding(self) -> dict[str, dict[int, np.ndarray]]:
        """Return masks of the target buffers' padding, by name and device."""
        numbers = self.target.numbers(dict(self.tensors))
        return {n: {d: held == PADDING for d, held in each.items()} for n, each in numbers.items()}


def _held_by_device(numbers: Mapping[str, Mapping[int, Numbers]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for each in numbers.values():
        for device, held in each.items():
            found.setdefault(device, set()).update(held[held != PADDING].tolist())
    return found


def filled_held(
    numbers: Mapping[str, Mapping[int, Numbers]],
    values: Bits,
    random: np.random.Generator | None = None,
    radix: int = 0,
) -> Held:
    """Return buffers in which element n has the value `values[n]`; padding is zero or, given
    `random`, a random value below `radix`."""

    def filled(held: Numbers) -> Bits:
        found = np.zeros(held.shape, values.dtype)
        if random is not None:
            found[...] = random.integers(0, radix, held.shape, values.dtype, endpoint=False)
        found[held != PADDING] = values[held[held != PADDING]]
        return found

    return {
        name: {device: filled(held) for device, held in each.items()}
        for name, each in numbers.items()
    }


def compare_held(got: Held, expected: Held) -> None:
    """Raise MismatchError unless every device has the expected bits, and zeros beyond the expected
    shape."""
    for name, each in expected.items():
        for device, wanted in each.items():
            found = got[name][device]
            padded = np.zeros(found.shape, found.dtype)
            if wanted.size:  # the shape of a buffer without elements is arbitrary
                padded[tuple(map(slice, wanted.shape))] = wanted
            same_bits(f"device {device}, buffer {name}", found, padded, wanted)


def _buffer_said(layout: BufferLayout, shapes: Mapping[str, tuple[int, ...]]) -> BufferSaid:
    parts: Any = getattr(layout, "parts", (layout,))
    said = tuple(_part_said(part, shapes[part.tensor]) for part in parts)
    cut = getattr(layout, "cut", None)
    return BufferSaid(getattr(layout, "dim", 0), said, None if cut is None else _cut_said(cut))


def _part_said(part: TensorPart, shape: tuple[int, ...]) -> PartSaid:
    dims = tuple(map(_cut_said, part.dims))
    if part.factors is None:
        names = [f"f{dim}" for dim in range(len(shape))]
        whole = tuple(((name, extent),) for name, extent in zip(names, shape, strict=True))
        return PartSaid(part.tensor, whole, tuple((name,) for name in names), dims)
    before = tuple(
        tuple((name, size or extent // math.prod(s or 1 for _, s in group)) for name, size in group)
        for group, extent in zip(part.factors.before, shape, strict=True)
    )
    return PartSaid(part.tensor, before, part.factors.after, dims)


def _cut_said(cut: DimCut) -> CutSaid:
    axes = tuple((ref.name, ref.pre, ref.size) for ref in cut.axes)
    return CutSaid(axes, cut.rule, cut.numbers, cut.into, cut.reversed, cut.table, cut.window)


def stored_from(data: Mapping[str, Any]) -> StoredSaid:
    """Return the stored layout in parsed JSON."""
    buffers = tuple((name, _buffer_from(each)) for name, each in data["buffers"])
    return StoredSaid(_tuples(data["axes"]), tuple(data["device_ids"]), buffers)


def _buffer_from(data: Mapping[str, Any]) -> BufferSaid:
    parts = tuple(
        PartSaid(
            part["tensor"],
            _tuples(part["before"]),
            _tuples(part["after"]),
            tuple(map(_cut_from, part["dims"])),
        )
        for part in data["parts"]
    )
    cut = data["cut"]
    return BufferSaid(data["dim"], parts, None if cut is None else _cut_from(cut))


def _cut_from(data: Mapping[str, Any]) -> CutSaid:
    return CutSaid(**{key: _tuples(value) for key, value in data.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
