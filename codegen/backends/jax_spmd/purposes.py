"""The docstrings of functions that a program calls several times."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from shardwright.codegen.backends.jax_spmd.calls import CallNames, listed_words
from shardwright.codegen.partition.local.steps import CallFunction, LocalProgram, Step, made, taken
from shardwright.codegen.trace.scopes import BACKWARD

MOST = 4
"""The most results that a docstring lists."""


def purpose(
    program: LocalProgram, own: CallNames, calls: Sequence[CallFunction], is_filled: bool
) -> str:
    """Return what a function computes and returns. `is_filled`: whether its name already says every
    result."""
    layer = own.layer
    if layer.startswith(f"{BACKWARD} of "):
        layer = f"the backward pass of {layer.removeprefix(f'{BACKWARD} of ')}"
    start = f"Compute {layer}, one of {len(calls)}"
    if is_filled or own.ends == ((),):
        return f"{start}."
    is_backward = _is_backward(program, calls[0])
    kept = {} if is_backward else kept_keys(program, own, calls)
    keys = [key for key in _keys(own) if key not in kept]
    if is_backward and all(key.startswith("d_") for key in keys):
        return f"{start}; return the gradients that later steps need."
    if len(keys) > MOST:
        return f"{start}; return the values that later steps need."
    said = [listed_words(keys)] if keys else []
    said += ["the values that its backward pass needs"] if kept else []
    return f"{start}; return {', and '.join(said)}."


def kept_keys(
    program: LocalProgram, own: CallNames, calls: Sequence[CallFunction]
) -> dict[str, None]:
    """Return the keys of results that only the backward pass uses."""
    later: set[int] = {*program.body.results}
    backward: set[int] = set()
    for step in program.body.steps:
        (backward if _is_backward(program, step) else later).update(taken(step))
    found: dict[str, None] = {}
    for key in _keys(own):
        slots = [slot for slot, end in enumerate(own.ends) if _key(end) == key]
        values = {call.results[slot] for call in calls for slot in slots}
        if values & backward and not values & later:
            found[key] = None
    return found


def _is_backward(program: LocalProgram, step: Step) -> bool:
    """Return whether a step is of a backward pass, as its results say."""
    return any(program.of(v).backward for v in made(step))


def _keys(own: CallNames) -> list[str]:
    return [*dict.fromkeys(map(_key, own.ends))]


def _key(end: tuple[str, ...]) -> str:
    return str(ast.literal_eval(end[0])[0])
