"""Primitives of other libraries, as what they are implemented by."""

from __future__ import annotations

from typing import Any

from shardwright.codegen.trace.batched import traced_at


def implemented(equation: Any) -> Any:
    """Return the jaxpr of what a primitive that is not of jax runs eagerly; None where that is
    no function of arrays."""
    primitive = equation.primitive
    impl = getattr(primitive, "impl", None)
    module = str(getattr(getattr(impl, "func", impl), "__module__", "jax"))
    if impl is None or module.partition(".")[0] == "jax":
        return None

    def run(*args: Any) -> list[Any]:
        made = impl(*args, **equation.params)
        return list(made) if primitive.multiple_results else [made]

    try:
        found = traced_at(equation, run, [atom.aval for atom in equation.invars])
    except Exception:  # whatever it raises for arrays without values
        return None
    has_itself = any(each.primitive is primitive for each in found.jaxpr.eqns)
    return None if has_itself else found
