"""Compare the values and bytes of an emitted program with the function on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardwright.codegen.ops.random_ops import KEY_KINDS
from shardwright.codegen.spec.hlo.collectives import received_in_all
from shardwright.codegen.trace.avals import KEY_BYTES

ROUNDING, SLACK = 2e-5, 8
"""Two tolerances: ROUNDING is relative to the largest float of a result, SLACK is a multiple of the
error on one device."""
EPSILONS = 4
"""The tolerance of narrow floats, relative to the largest one, in epsilons of their dtype."""


def arguments(avals: Any, seed: int = 0) -> Any:
    """Return random arrays for avals: floats mostly below one in magnitude, small integers, keys,
    booleans."""
    rng = np.random.default_rng(seed)

    def made(aval: Any) -> Any:
        if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
            words = KEY_BYTES[str(aval.dtype)] // 4
            numbers = jnp.asarray(rng.integers(0, 1 << 31, (*aval.shape, words)), jnp.uint32)
            return jax.random.wrap_key_data(numbers, impl=KEY_KINDS[str(aval.dtype)])
        if jnp.issubdtype(aval.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 4, aval.shape), aval.dtype)
        if aval.dtype == bool:
            return jnp.asarray(rng.integers(0, 2, aval.shape), aval.dtype)
        floats = rng.standard_normal(aval.shape) * 0.5
        return jnp.asarray(abs(floats) if is_unsigned(aval.dtype) else floats, aval.dtype)

    return jax.tree.map(made, avals)


def is_unsigned(dtype: Any) -> bool:
    """Return whether a float type has no negative numbers, like float8_e8m0fnu."""
    return bool(jnp.finfo(dtype).min > 0) if jnp.issubdtype(dtype, jnp.floating) else False


def in_float64(fn: Callable[..., Any], given: Any) -> Any:
    """Run a function on one device with the widest floats."""
    with jax.enable_x64(True):
        return jax.tree.map(lambda x: _wide(np.asarray(x)), fn(*jax.tree.map(_wide, given)))


def _wide(x: Any) -> Any:
    for kind, wide in ((jnp.floating, np.float64), (jnp.complexfloating, np.complex128)):
        if jnp.issubdtype(x.dtype, kind):
            return np.asarray(x, wide)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return np.asarray(x, np.int64)
    return x


def fault(fn: Callable[..., Any], avals: Any, program: Callable[..., Any]) -> str:
    """Describe the first wrong result of a program, or return "". Every device's part of every
    result is compared, including replicas."""
    given = arguments(avals)
    one, exact = jax.tree.map(np.asarray, fn(*given)), in_float64(fn, given)
    try:
        ours = jax.block_until_ready(program(*given))
    except Exception as error:  # the module may raise anything
        return f"{type(error).__name__}: {error}"[:500]
    if jax.tree.structure(one) != jax.tree.structure(ours):
        return "a different tree of results"
    largest = max(map(_largest, jax.tree.leaves(exact)), default=0.0)
    leaves = zip(*map(jax.tree.leaves, (one, exact, ours)), strict=True)
    for number, (own, wide, made) in enumerate(leaves):
        said = _of_result(own, wide, made, largest)
        if said:
            return f"result {number}: {said}"
    return ""


def gradient_fault(fn: Callable[..., Any], avals: Any, program: Callable[..., Any]) -> str | None:
    """Describe the first wrong gradient of a program, or return "". Return None if there is nothing
    to compare: the function takes gradients itself, or JAX cannot differentiate it or the
    program."""
    leaves = jax.tree.leaves(avals)
    varied = [number for number, each in enumerate(leaves) if is_inexact(each.dtype)]
    if not varied:
        return None
    # JAX puts `transpose(` into the name stack of a backward pass.
    if "transpose(" in jax.make_jaxpr(fn)(*avals).pretty_print(name_stack=True):
        return None
    try:
        for each in (fn, program):
            jax.eval_shape(gradient_of(each, varied), *avals)
    except Exception:  # JAX raises many kinds of errors when it cannot differentiate
        return None
    said = fault(jax.jit(gradient_of(fn, varied)), avals, jax.jit(gradient_of(program, varied)))
    return said and f"gradient: {said}"


def gradient_of(fn: Callable[..., Any], varied: Sequence[int]) -> Callable[..., Any]:
    """Return a function of the same arguments that returns gradients with respect to the `varied`
    leaves: gradients of a number that depends on every float of `fn`'s results."""

    def number(inexact: list[Any], given: Any) -> Any:
        leaves, tree = jax.tree.flatten(given)
        for place, each in zip(varied, inexact, strict=True):
            leaves[place] = each
        results = jax.tree.leaves(fn(*jax.tree.unflatten(tree, leaves)))
        floats = [each for each in results if is_inexact(each.dtype)]
        return sum((jnp.tanh(_real(each)).sum() for each in floats), start=0.0)

    def gradients(*given: Any) -> Any:
        leaves = jax.tree.leaves(given)
        return jax.grad(number)([leaves[place] for place in varied], given)

    return gradients


def _real(x: Any) -> Any:
    return x.real + x.imag if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


def _largest(exact: Any) -> float:
    if not is_inexact(exact.dtype):
        return 0.0
    return float(np.max(np.abs(exact[np.isfinite(exact)]), initial=0))


def _of_result(one: Any, exact: Any, ours: Any, largest: float) -> str:
    """Describe how the devices' parts of a result differ from the result on one device, or return
    "". `largest`: the largest magnitude of any result; values that cancel to zero, like the
    gradient of a constant, get a tolerance relative to it."""
    if one.shape != ours.shape or one.dtype != ours.dtype:
        return f"{ours.dtype}{ours.shape}, not {one.dtype}{one.shape}"
    allowed = allowance(one, exact)
    if is_inexact(one.dtype):
        allowed += float(jnp.finfo(one.dtype).eps) * largest
    for shard in getattr(ours, "addressable_shards", ()):
        said = difference(one[shard.index], exact[shard.index], np.asarray(shard.data), allowed)
        if said:
            return f"device {shard.device.id}: {said}"
    return difference(one, exact, np.asarray(ours), allowed)


def is_inexact(dtype: Any) -> bool:
    """Return whether numbers of a dtype are rounded, including bfloat16."""
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def allowance(one: Any, exact: Any) -> float:
    """Return the tolerance of a result: a multiple of one device's error, plus rounding; 0 for
    integers."""
    if not is_inexact(one.dtype):
        return 0.0
    known = np.isfinite(exact) & np.isfinite(one)
    scale = np.max(np.abs(exact[known]), initial=0)
    rounding = max(ROUNDING, EPSILONS * float(jnp.finfo(one.dtype).eps))
    if jnp.finfo(one.dtype).bits > 32:
        rounding = ROUNDING**2
    off = np.max(np.abs(np.asarray(one, exact.dtype)[known] - exact[known]), initial=0)
    return float(SLACK * off + rounding * scale)


def difference(one: Any, exact: Any, ours: Any, allowed: float | None = None) -> str:
    """Describe how a result differs, or return "". Integers must equal the result on one device bit
    for bit; floats may differ by `allowed` from the exact result."""
    if one.shape != ours.shape or one.dtype != ours.dtype:
        return f"{ours.dtype}{ours.shape}, not {one.dtype}{one.shape}"
    if not is_inexact(one.dtype):
        return "" if np.array_equal(one, ours) else "other integers"
    if not np.array_equal(np.isfinite(one), np.isfinite(ours)):
        return "different elements are finite"
    known = np.isfinite(exact) & np.isfinite(one)
    most = allowance(one, exact) if allowed is None else allowed
    off = np.max(np.abs(np.asarray(ours, exact.dtype)[known] - exact[known]), initial=0)
    return "" if off <= most else f"off by {off}, allowed {most}"


def unpadded(module: Any, program: Callable[..., Any]) -> Callable[..., Any]:
    """Return a module's program as a function of arrays without padding. The padding of arguments
    is NaN, or the largest integer, and must not change a result.

    The function raises ValueError if the padding of a result is not zero.
    """

    def run(*given: Any) -> Any:
        results = program(*jax.tree.map(_poisoned, module.pad(*given), given))
        whole = module.unpad(results)
        for made, own in zip(*map(jax.tree.leaves, (results, whole)), strict=True):
            if made.shape != own.shape and not isinstance(made, jax.core.Tracer):
                _check_padding(np.array(made), own.shape)
        return whole

    return run


def _poisoned(padded: Any, given: Any) -> Any:
    if padded.shape == given.shape:
        return padded
    inside = np.zeros(padded.shape, bool)
    inside[tuple(map(slice, given.shape))] = True
    poison: Any = np.nan if is_inexact(padded.dtype) else True
    if jnp.issubdtype(padded.dtype, jnp.integer):
        poison = jnp.iinfo(padded.dtype).max
    return jnp.where(inside, padded, jnp.asarray(poison, padded.dtype))


def _check_padding(result: np.ndarray, shape: tuple[int, ...]) -> None:
    result[tuple(map(slice, shape))] = 0
    if result.any():
        raise ValueError("the padding of a result is not zero")


def received(avals: Any, program: Any, devices: int) -> int:
    """Return the bytes that the busiest device receives according to the program's HLO for CPUs.
    Collectives in loops count once per iteration."""
    compiled = program.lower(*avals).compile()
    return max(received_in_all(compiled.as_text(), devices))
