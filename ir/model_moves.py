"""The reference implementation of a runtime, which moves the buffers of all devices in one process,
following the data of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError, in_a_line

Arrays = Mapping[int, Mapping[str, npt.NDArray[Any]]]
"""The buffers of all devices, by device id and buffer name."""


def moved(data: Mapping[str, Any], shards: Arrays) -> dict[int, dict[str, npt.NDArray[Any]]]:
    """Return the target buffers of all devices, given their source buffers.

    `data`: `ModelPlan.data`. Padding is zero. Raises InputError for a missing buffer, and for a
    wrong shape or dtype.
    """
    results: dict[int, dict[str, npt.NDArray[Any]]] = {}
    for number, source, target, turn, _, _, (held,), (wanted,) in data["members"]:
        kind = data["kinds"][number]
        senders, receivers = data["places"][source], data["places"][target]
        lines = {
            device: _line(shards, device, held, _shape(kind["source"][0], position), kind["dtype"])
            for position, device in enumerate(senders)
        }
        dtype, *others = dict.fromkeys(line.dtype for line in lines.values())
        if others:
            raise InputError(
                "the shards of a buffer must have the same dtype on all devices",
                argument=held,
                got=", ".join(map(str, (dtype, *others))),
                expected="one dtype",
            )
        for position, device in enumerate(receivers):
            shape = _shape(kind["target"][0], position)
            of_device = results.setdefault(device, {})
            if wanted not in of_device:
                of_device[wanted] = np.zeros(shape, dtype)
        for sender, receiver, form, start, *starts in kind["relays"]:
            _, _, loops = kind["forms"][form]
            read, *written = _places(loops, [start, *starts])
            for place, position in enumerate(kind["receivers"][receiver]):
                device = receivers[position]
                giver = device
                if sender >= 0:
                    among = kind["senders"][sender]
                    giver = senders[among[(place + turn) % len(among)]]
                for at in written:
                    results[device][wanted].reshape(-1)[at] = lines[giver][read]
    return results


def _shape(buffer: list[Any], position: int) -> tuple[int, ...]:
    _, shapes = buffer
    return tuple(shapes[position if len(shapes) > 1 else 0])


def _line(
    shards: Arrays, device: int, name: str, shape: tuple[int, ...], dtype: str
) -> npt.NDArray[Any]:
    found = shards.get(device, {}).get(name)
    if found is None:
        had = ", ".join(list(shards.get(device, {}))[:10]) or "nothing"
        raise InputError(
            "a device must have every buffer of its layout", argument=f"device {device}",
            got=had, expected=name,
        )  # fmt: skip
    if tuple(np.shape(found)) != shape:
        raise InputError(
            "a buffer must have the shape of its layout",
            argument=f"device {device}, {name}",
            got=in_a_line(np.shape(found)),
            expected=str(shape),
        )
    line = np.ascontiguousarray(found).reshape(-1)
    bits = line.dtype.kind in "ui" and line.dtype.itemsize == itemsize(dtype)
    if line.dtype.name != dtype and not bits:
        raise InputError(
            "a buffer must have the dtype of its tensor",
            argument=f"device {device}, {name}",
            got=line.dtype.name,
            expected=f"{dtype}, or {8 * itemsize(dtype)}-bit integers with the same bits",
        )
    return line


def _places(loops: list[list[int]], starts: list[int]) -> list[npt.NDArray[np.int64]]:
    """Return, for each buffer, the flat indices that loops visit, given the first index in each
    buffer."""
    found = []
    for end, start in enumerate(starts):
        at = np.array(start, dtype=np.int64)
        for loop in loops:
            at = np.add.outer(at, np.arange(loop[0]) * loop[1 + end])
        found.append(at.reshape(-1))
    return found
