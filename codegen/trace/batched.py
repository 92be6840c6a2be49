"""Convert a `while_loop` under `vmap`, which has one test per example because examples end at
different iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core, source_info_util


def with_one_test(equation: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the parameters and operands of an equivalent `while` with a single test, to which JAX
    lowers it: it continues while any test is true, and examples whose test is false stay
    unchanged."""
    params, operands = equation.params, list(equation.invars)
    test, turn, count = params["cond_jaxpr"], params["body_jaxpr"], params["cond_nconsts"]
    if not test.out_avals[0].shape:
        return params, operands
    consts, given = operands[:count], params["body_nconsts"]
    goes_on, turns = map(core.jaxpr_as_fun, (test, turn))

    def any_goes_on(*args: Any) -> Any:
        return jnp.any(goes_on(*args)[0])

    def turned(*args: Any) -> list[Any]:
        tested, own, carry = args[:count], args[count : count + given], args[count + given :]
        (more,) = goes_on(*tested, *carry)
        return [_chosen(more, x, was) for x, was in zip(turns(*own, *carry), carry, strict=True)]

    avals = [*test.in_avals[:count], *turn.in_avals]
    lengths = {"cond_nconsts": count, "body_nconsts": count + given}
    bodies = {
        "cond_jaxpr": traced_at(equation, any_goes_on, test.in_avals),
        "body_jaxpr": traced_at(equation, turned, avals),
    }
    return {**params, **lengths, **bodies}, [*consts, *operands]


def traced_at(equation: Any, fn: Callable[..., Any], avals: Any) -> Any:
    """Return the jaxpr of a function. Its equations get the source line of `equation`."""
    with source_info_util.user_context(equation.source_info.traceback):
        return jax.make_jaxpr(fn)(*avals)


def _chosen(more: Any, new: Any, old: Any) -> Any:
    """Return a value after an iteration: the new value for examples that continue, the old value
    for the others."""
    wide = lax.broadcast_in_dim(more, new.shape, range(more.ndim))
    return lax.select_n(wide, old, new)
