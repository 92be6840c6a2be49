"""A model's module to verify, as plain data, and the values that the oracle expects."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwright.codegen.checks.oracle.definition import Bits
from shardwright.codegen.checks.relayout_case import Held, StoredSaid, filled_held, stored_from
from shardwright.ir.dtypes import itemsize

if TYPE_CHECKING:  # only for annotations: a worker handles plain data
    from shardwright.ir.model import Model
    from shardwright.ir.model_plan import ModelPlan
    from shardwright.ir.rules import PlacedBuffer

ONE_IN = 1 << 20
"""The number of runs is large enough that the probability that two elements of a tensor have
equal bits in all of them is below 1 / ONE_IN."""


@dataclass(frozen=True)
class BufferCase:
    """A buffer of a model on some devices, and the tensors in it."""

    name: str
    dtype: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    stored: StoredSaid  # tensors are named by their index in `tensors`

    @staticmethod
    def of(placed: PlacedBuffer, model: Model) -> BufferCase:
        """Return the case of a buffer."""
        tensors = tuple((name, tuple(model.tensors[name].shape)) for name in placed.tensors)
        stored = placed.stored(model)
        said = replace(StoredSaid.of(stored), device_ids=tuple(placed.place.devices))
        return BufferCase(placed.name, stored.dtype, tensors, said)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> BufferCase:
        tensors = tuple((name, tuple(shape)) for name, shape in data["tensors"])
        return BufferCase(data["name"], data["dtype"], tensors, stored_from(data["stored"]))

    def held(self, bits: Mapping[str, Bits], random: np.random.Generator | None = None) -> Held:
        """Return the buffer on every device, from the bits of its tensors by name; padding is zero,
        or drawn from `random`."""
        shapes = {str(number): shape for number, (_, shape) in enumerate(self.tensors)}
        values = np.concatenate([bits[name].reshape(-1) for name, _ in self.tensors])
        return filled_held(self.stored.numbers(shapes), values, random, radix_of(self.dtype))


@dataclass(frozen=True)
class ModelCase:
    """An emitted module, and the model that it claims to move."""

    name: str
    backend: str
    module: Path
    before: tuple[BufferCase, ...]
    after: tuple[BufferCase, ...]

    @staticmethod
    def of(plan: ModelPlan, name: str, backend: str, module: Path) -> ModelCase:
        """Return the case of a plan whose module is the file `module`."""
        ends = (
            tuple(BufferCase.of(placed, plan.model) for placed in side.place(plan.model))
            for side in (plan.source, plan.target)
        )
        return ModelCase(name, backend, module, *ends)

    def devices(self) -> tuple[int, ...]:
        """Return all device ids, ascending."""
        every = (each.stored.device_ids for each in (*self.before, *self.after))
        return tuple(sorted({device for ids in every for device in ids}))

    def to_json(self) -> str:
        """Return one line of JSON; `from_data` reads its contents."""
        return json.dumps({**dataclasses.asdict(self), "module": str(self.module)})

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> ModelCase:
        """Return the case in parsed JSON."""
        ends = (tuple(map(BufferCase.from_data, data[end])) for end in ("before", "after"))
        return ModelCase(data["name"], data["backend"], Path(data["module"]), *ends)

    def runs(self) -> Iterator[tuple[dict[int, dict[str, Bits]], dict[int, dict[str, Bits]]]]:
        """Yield pairs of states, before the move and expected after it, as bits by device and
        buffer name. All bits are random; padding is random before and zero after."""
        shapes = {name: (each.dtype, shape) for each in self.after for name, shape in each.tensors}
        most = max(math.prod(shape) for _, shape in shapes.values())
        narrowest = min(math.log2(radix_of(dtype)) for dtype, _ in shapes.values())
        random = np.random.default_rng(most)
        for _ in range(math.ceil(math.log2(max(most, 2) ** 2 * ONE_IN) / narrowest)):
            bits = {
                name: random.integers(0, radix_of(dtype), shape, f"u{itemsize(dtype)}")
                for name, (dtype, shape) in shapes.items()
            }
            yield _by_device(self.before, bits, random), _by_device(self.after, bits)


def radix_of(dtype: str) -> int:
    """Return the number of bit patterns of an element."""
    return 2 if dtype == "bool" else 1 << 8 * itemsize(dtype)


def _by_device(
    buffers: tuple[BufferCase, ...],
    bits: Mapping[str, Bits],
    random: np.random.Generator | None = None,
) -> dict[int, dict[str, Bits]]:
    found: dict[int, dict[str, Bits]] = {}
    for each in buffers:
        (held,) = each.held(bits, random).values()
        for device, shard in held.items():
            found.setdefault(device, {})[each.name] = shard
    return found
