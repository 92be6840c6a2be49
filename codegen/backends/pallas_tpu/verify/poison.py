"""Fill values of fresh memory in JAX's TPU interpreter, and the time of copies, chosen at run time.

`InterpretParams` fixes both when a kernel is compiled, which is the slow part. Here the interpreter
queries them at run time, so one compilation serves every mode. Imported only in workers: it
replaces two names of the interpreter for the life of the process.
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
    """The poison of fresh memory, and whether copies happen at once or as late as possible."""

    memory: Literal["nan", "zero"]
    copies: Literal["on_wait", "eager"]


MODES = (Mode("nan", "on_wait"), Mode("zero", "eager"))
"""Both poisons, combined with both ways in which the interpreter can time copies."""

_current = [MODES[0]]


def choose(mode: Mode) -> None:
    """Set the mode of kernels that run from now on."""
    _current[0] = mode


def interpret_params() -> Any:
    """Return the parameters to compile a kernel with; it runs in the current mode."""
    _install()
    # From jax 0.11 on a race raises, which leaves the interpreter's state broken, unless set to
    # warn.
    names = {each.name for each in dataclasses.fields(pltpu.InterpretParams)}
    warns = {"on_race": "warn"} if "on_race" in names else {}
    return pltpu.InterpretParams(detect_races=True, **warns)


def _fresh(shape: Sequence[int], dtype: Any, memory: str) -> Any:
    """Return an array filled at run time, in place of `utils.get_uninitialized_array`."""
    del memory  # fixed at compile time

    def fill() -> Any:
        value = utils.get_uninitialized_value(dtype, _current[0].memory)
        return np.full(tuple(shape), value, dtype=dtype)

    return io_callback(fill, jax.ShapeDtypeStruct(tuple(shape), dtype))


def _shared(**parameters: Any) -> Any:
    """Return the state of one kernel's run, in place of `shared_memory.SharedMemory`."""
    mode = _current[0]
    parameters |= {"uninitialized_memory": mode.memory, "dma_execution_mode": mode.copies}
    return _SHARED_MEMORY(**parameters)


_SHARED_MEMORY = shared_memory.SharedMemory


def _install() -> None:
    utils.get_uninitialized_array = _fresh
    shared_memory.SharedMemory = _shared
