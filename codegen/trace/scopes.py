"""Find the named scopes of an equation: those of `jax.named_scope`, and the modules of flax and
haiku."""

from __future__ import annotations

import re
from typing import Any

BACKWARD = "backward"
"""The outermost scope of a backward pass."""
OF_JAX = ("checkpoint", "remat", "rematted_computation")
"""Scopes that JAX itself adds."""
WRAPPED = re.compile(r"(\w+)\((.*)\)")


def scope_of(equation: Any, around: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of an equation, outermost first. `around`: the scopes of the enclosing
    call.

    Omit scopes that jit and `jax.checkpoint` add. The outermost scope of a backward pass is
    BACKWARD.
    """
    text = str(getattr(equation.source_info, "name_stack", ""))
    if not text:
        return around
    found: list[str] = []
    for part in text.split("/"):
        wrapper = ""
        while match := WRAPPED.fullmatch(part):
            wrapper, part = match[1], match[2]
        if part.isidentifier() and wrapper not in ("jit", "pjit") and part not in OF_JAX:
            found.append(part)
    own = (*around, *found)
    if "transpose(" in text and own[:1] != (BACKWARD,):
        return (BACKWARD, *own)
    return own
