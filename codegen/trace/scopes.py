"""The named scopes of an equation: `jax.named_scope`, modules of flax and haiku."""

from __future__ import annotations

import re
from typing import Any

BACKWARD = "backward"
"""The outermost scope of a backward pass."""
OF_JAX = ("checkpoint", "remat", "rematted_computation")
"""Scopes that JAX adds itself."""
WRAPPED = re.compile(r"(\w+)\((.*)\)")


def scope_of(equation: Any, around: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of an equation, outermost first; `around`: those of the enclosing call.
    Scopes added by transformations and calls are dropped, except the backward pass."""
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
    if own and "transpose(" in text and own[0] != BACKWARD:
        return (BACKWARD, *own)
    return own


def scoped_name(kind: str, scope: tuple[str, ...]) -> str:
    """Return a name for an op's result in its scopes: `query_dot_general`.

    >>> scoped_name("tanh", ()), scoped_name("dot_general", ("LM", "Block_0", "query"))
    ('tanh', 'query_dot_general')
    >>> scoped_name("dot_general", ("backward", "LM", "query"))
    'd_query_dot_general'
    """
    if len(scope) < 2:
        return f"{scope[0]}_{kind}" if scope and scope[0] != BACKWARD else kind
    return f"{'d_' if scope[0] == BACKWARD else ''}{scope[-1]}_{kind}"
