"""Models at random, with stored layouts at both sides, and what the oracle says of them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from layouts import numbers_of
from random_relayouts import drawn

import shardwright as sw
from shardwright.ir.parts import BufferLayout, TensorPart
from shardwright.ir.stored import Stored


@dataclass(frozen=True)
class ModelCase:
    """A model of several relayouts, each on devices of its own or on those of others."""

    relayouts: tuple[sw.Relayout, ...]

    def model(self, dtypes: Sequence[str] = ("int64",) * 3) -> sw.Model:
        """Its tensors; `dtypes`: of each relayout the element type."""
        return sw.Model(
            {
                f"m{number}.{name}": {"shape": shape, "dtype": dtype}
                for number, (relayout, dtype) in enumerate(
                    zip(self.relayouts, dtypes, strict=False)
                )
                for name, shape in relayout.source.tensors.items()
            }
        )

    def rules(self, end: str) -> sw.Rules:
        """Its rules at an end, `source` or `target`."""
        found: dict[str, object] = {}
        for number, relayout in enumerate(self.relayouts):
            stored: Stored = getattr(relayout, end)
            for name, layout in stored.buffers.items():
                found[f"m{number}.{name}"] = {
                    "layout": _named(layout, number),
                    "mesh": stored.mesh,
                    "also": True,
                }
        return sw.Rules("a=1", found)

    def held(self, end: str) -> dict[int, dict[str, np.ndarray]]:
        """What devices store: of each element its number, from 1, and 0 where there is none."""
        found: dict[int, dict[str, np.ndarray]] = {}
        for number, relayout in enumerate(self.relayouts):
            stored: Stored = getattr(relayout, end)
            for name in stored.buffers:
                for device, numbers in numbers_of(stored, name).items():
                    found.setdefault(device, {})[f"m{number}.{name}"] = numbers + 1
        return found


def _named(layout: BufferLayout, number: int) -> BufferLayout:
    def part(each: TensorPart) -> TensorPart:
        return dataclasses.replace(each, tensor=f"m{number}.{each.tensor}")

    if isinstance(layout, TensorPart):
        return part(layout)
    return dataclasses.replace(layout, parts=tuple(map(part, layout.parts)))


def model_case(seed: int) -> ModelCase:
    """A model of one to three relayouts, of which some stand several times in it."""
    kinds = [each for each in drawn(seed, 12) if _one_home(each)][:2]
    chosen = random.Random(seed)
    return (
        ModelCase(tuple(chosen.choices(kinds, k=chosen.randint(1, 3))))
        if kinds
        else model_case(seed + 1000)
    )


def _one_home(relayout: sw.Relayout) -> bool:
    """Whether the first buffer of each source tensor has all of it."""
    for name in relayout.source.tensors:
        first = next(
            layout for layout in relayout.source.buffers.values() if name in _tensors(layout)
        )
        shapes = {each: relayout.source.tensors[each] for each in _tensors(first)}
        try:
            sw.Stored(relayout.source.mesh, shapes, {"it": first}, "int16")
        except sw.InputError:
            return False
    return True


def _tensors(layout: Any) -> list[str]:
    return [part.tensor for part in getattr(layout, "parts", (layout,))]
