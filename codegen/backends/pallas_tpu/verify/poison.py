"""Choose, at run time, how JAX's TPU interpreter fills uninitialised memory and when it makes
copies.

`InterpretParams` fixes both when a kernel is compiled, which is slow. Here the interpreter reads
them at run time, so a kernel is compiled once for all modes. Imported only by workers: it replaces
two functions of the interpreter for the life of the process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jax._src.pallas.mosaic.interpret import shared_memory, utils
from jax.experimental import io_callback
from jax.experimental.pallas import tpu as pltpu


@dataclass(frozen=True)
class Mode:
    """The fill value of uninitialised memory, and whether copies are made at once or only when they
    are awaited."""

    memory: Literal["nan", "zero"]
    copies: Literal["on_wait", "eager"]


MODES = (Mode("nan", "on_wait"), Mode("zero", "eager"))
"""The modes in which kernels run: each fill value with a different time of copies."""

_current = [MODES[0]]


def choose(mode: Mode) -> None:
    _current[0] = mode


def interpret_params() -> Any:
    """Return the parameters for compiling a kernel so that each run uses the mode that is set at
    that time."""
    _install()
    # From jax 0.11 on, the interpreter raises an error for a race, which leaves its state broken,
    # unless it is set to warn.
    names = {each.name for each in dataclasses.fields(pltpu.InterpretParams)}
    warns = {"on_race": "warn"} if "on_race" in names else {}
    return pltpu.InterpretParams(detect_races=True, **warns)


def _fresh(shape: Sequence[int], dtype: Any, memory: str) -> Any:
    """Return an array that is filled at run time; replaces `utils.get_uninitialized_array`."""
    del memory  # fixed at compile time

    def fill() -> Any:
        value = utils.get_uninitialized_value(dtype, _current[0].memory)
        return np.full(tuple(shape), value, dtype=dtype)

    return io_callback(fill, jax.ShapeDtypeStruct(tuple(shape), dtype))


def _shared(**parameters: Any) -> Any:
    """Return the state of a kernel's run, in the current mode; replaces
    `shared_memory.SharedMemory`."""
    mode = _current[0]
    parameters |= {"uninitialized_memory": mode.memory, "dma_execution_mode": mode.copies}
    return _SHARED_MEMORY(**parameters)


_SHARED_MEMORY = shared_memory.SharedMemory


def _install() -> None:
    utils.get_uninitialized_array = _fresh
    shared_memory.SharedMemory = _shared
