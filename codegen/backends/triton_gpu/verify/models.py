"""Run an emitted Triton module of a model in one process. Imported only by workers."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from shardwright.codegen.backends.triton_gpu.verify.bits import to_bits, to_torch
from shardwright.codegen.backends.triton_gpu.verify.memory import Memory
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.model_case import BufferCase, ModelCase
from shardwright.codegen.checks.oracle.definition import Bits

POISON = 0x01
"""The byte that fills memory before it is written."""

States = Mapping[int, Mapping[str, Bits]]


def run_model(module: ModuleType, case: ModelCase) -> tuple[str, ...]:
    """Move the model's states in one process, first into results that the module allocates, then
    into results of the caller. Return the names of the checks that passed. Raises MismatchError."""
    for given, wanted in case.runs():
        states = _tensors(given, case.before)
        named = {f"{n} of {d}": x for d, each in states.items() for n, x in each.items()}
        zeros = {d: {n: np.zeros_like(x) for n, x in each.items()} for d, each in wanted.items()}
        memory = Memory(POISON, named)
        with memory, quick_launches():
            compare.states(_bits(module.sync.local(states)), wanted)
            out = _tensors(zeros, case.after)
            for x in (x for each in out.values() for x in each.values()):
                memory.allow(x)
            given_back = module.sync.local(states, out=out)
            with compare.said_of("what is returned of out"):
                compare.states(_bits(given_back), wanted)
            with compare.said_of("out"):
                compare.states(_bits(out), wanted)
        memory.check({})
        with compare.said_of("inputs kept"):
            compare.states(_bits(states), given)
    return ("values", "padding", "out", "reads in bounds", "inputs kept")


def _tensors(states: States, buffers: tuple[BufferCase, ...]) -> dict[int, dict[str, Any]]:
    dtypes = {each.name: each.dtype for each in buffers}
    return {
        device: {name: to_torch(bits, dtypes[name]) for name, bits in each.items()}
        for device, each in states.items()
    }


def _bits(states: Mapping[int, Mapping[str, Any]]) -> States:
    return {d: {name: to_bits(x) for name, x in each.items()} for d, each in states.items()}
