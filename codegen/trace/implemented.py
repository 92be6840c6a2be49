"""Trace the primitives of other libraries, and of `jax.experimental.sparse`, through their
implementations."""

from __future__ import annotations

from typing import Any

from jax.experimental.sparse import bcoo, bcsr

from shardwright.codegen.trace.batched import traced_at


def implemented(equation: Any) -> Any:
    """Return the jaxpr of a primitive's eager implementation. Return None if the primitive is one
    of JAX's that is not sparse, or if the implementation cannot be traced."""
    primitive = equation.primitive
    impl = _sparse(primitive.name)
    if impl is None:
        impl = getattr(primitive, "impl", None)
        module = str(getattr(getattr(impl, "func", impl), "__module__", "jax"))
        if impl is None or module.partition(".")[0] == "jax":
            return None

    def run(*args: Any) -> list[Any]:
        made = impl(*args, **equation.params)
        return list(made) if primitive.multiple_results else [made]

    try:
        found = traced_at(equation, run, [atom.aval for atom in equation.invars])
    except Exception:  # an implementation may raise anything when traced
        return None
    has_itself = any(each.primitive is primitive for each in found.jaxpr.eqns)
    return None if has_itself else found


def _sparse(name: str) -> Any:
    """Return the implementation of a `jax.experimental.sparse` primitive on dense arrays, or None
    for other primitives. JAX's lowerings run these functions too, but JAX does not export them."""
    module = {"bcoo": bcoo, "bcsr": bcsr}.get(name.partition("_")[0])
    return getattr(module, f"_{name}_impl", None)
