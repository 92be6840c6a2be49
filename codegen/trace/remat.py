"""Trace `jax.checkpoint` as an op with a body."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core

from shardwright.codegen.trace.params import Params
from shardwright.codegen.trace.policies import policy_text
from shardwright.ir.program import Op


def remat(block: Any, equation: Any) -> tuple[int, ...]:
    """Add an op with a body for `jax.checkpoint`, and return its results. If the derivative may
    reuse the forward pass, inline the body instead."""
    params = equation.params
    prevented = params["prevent_cse"]
    if params["differentiated"] and not np.any(prevented):
        return tuple(block.call(equation))
    policy = policy_text(params["policy"])
    line = block.tracer.lines.of(equation)
    pairs = zip(params["jaxpr"].invars, equation.invars, strict=True)
    literals = {v: atom for v, atom in pairs if isinstance(atom, core.Literal)}
    atoms = [atom for atom in equation.invars if not isinstance(atom, core.Literal)]
    operands = tuple(map(block.read, atoms))
    names = block.tracer.names_of(operands)
    body = block.tracer.body(params["jaxpr"], (), names, literals, "remat_arg")
    results: tuple[int, ...] = tuple(
        block.tracer.value("remat", v.aval, line) for v in equation.outvars
    )
    if policy is None:
        said = "the policy of jax.checkpoint has no name, so it is ignored"
        block.tracer.warn(said, line, results)
    own: Params = (
        ("again", bool(params["differentiated"])),
        ("policy", policy or ""),
        ("prevent_cse", bool(np.any(prevented))),
    )
    block.ops.append(Op("remat", operands, results, own, (body,), line=line))
    return results
