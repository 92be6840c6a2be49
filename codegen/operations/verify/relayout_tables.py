"""Check a relayout module's tables element by element, for meshes too large to run here. Used in
workers only."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.relayout_case import Held, RelayoutCase, compare_held

CHECK = "tables"


def followed(module: ModuleType, case: RelayoutCase) -> tuple[str, ...]:
    """Move every element as a module's `RELAYS` say, compare the target buffers with the oracle,
    and return the check's name. Raises MismatchError for wrong buffers, and for a relay that
    reaches beyond a buffer."""
    for side, said in ((module.SOURCE_IDS, case.source), (module.TARGET_IDS, case.target)):
        compare.expect("device ids", list(side), list(said.device_ids))
    for given, wanted in case.runs():
        before, after = _lines(module, "SOURCE", given), _lines(module, "TARGET", wanted)
        for sender, receiver, form, start, *starts in module.RELAYS:
            source, targets, loops = module.FORMS[form]
            line = before[sender][source]
            moved = line[_places(line, start, tuple(loop[:2] for loop in loops))]
            for number, (target, to) in enumerate(zip(targets, starts, strict=True)):
                line = after[receiver][target]
                line[_places(line, to, tuple((loop[0], loop[2 + number]) for loop in loops))] = (
                    moved
                )
        shapes = {name: dict(zip(module.TARGET_IDS, each[1], strict=True))
                  for name, each in module.TARGET.items()}  # fmt: skip
        compare_held(
            {
                name: {d: after[d][n].reshape(shapes[name][d]) for d in wanted[name]}
                for n, name in enumerate(module.TARGET)
            },
            wanted,
        )
    return (CHECK,)


def _lines(module: ModuleType, side: str, held: Held) -> dict[int, list[Any]]:
    """Return the buffers of each device as flat arrays: source buffers with ones in their padding,
    target buffers of zeros."""
    found: dict[int, list[Any]] = {}
    for name, (_, shapes) in getattr(module, side).items():
        for device, shape in zip(getattr(module, f"{side}_IDS"), shapes, strict=True):
            bits = held[name][device]
            line = np.full(shape, side == "SOURCE", bits.dtype)
            if bits.size and side == "SOURCE":
                line[tuple(map(slice, bits.shape))] = bits
            found.setdefault(device, []).append(line.reshape(-1))
    return found


def _places(line: Any, start: int, loops: tuple[tuple[int, int], ...]) -> Any:
    """Return the indices in a flat array that nested loops of (times, step) visit, starting at
    `start`. Raises MismatchError if an index is outside the array."""
    places = start + _offsets(loops)
    if places.min() < 0 or places.max() >= len(line):
        reached = f"element {places.max()} of a buffer of {len(line)}"
        raise MismatchError(f"a relay that begins at element {start} reaches {reached}")
    return places


@functools.cache
def _offsets(loops: tuple[tuple[int, int], ...]) -> Any:
    places = np.zeros(1, np.int64)
    for times, step in loops:
        places = (places[:, None] + step * np.arange(times)).reshape(-1)
    return places
