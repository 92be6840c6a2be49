"""How programs of public libraries are listed: functions with arguments, for the mesh d=4, t=2."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from shardwright.codegen.operations.verify import program_values


@dataclass(frozen=True)
class Case:
    """A function, its arguments (arrays, or types that random numbers fill), and whether weights
    lie split over t in their last dimension. The rows of the last argument lie split over d.
    `off`: by how much of its largest element a result may differ."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    weights: bool = False
    off: float = 1e-4


PROGRAMS: dict[str, Callable[[], Case]] = {}


def program(make: Callable[[], Case]) -> Callable[[], Case]:
    """List what makes a program by its name."""
    PROGRAMS[make.__name__] = make
    return make


def named(name: str, make: Callable[[], Case]) -> None:
    """List what makes a program by a name of its own."""
    PROGRAMS[name] = make


def library(name: str) -> Any:
    return importlib.import_module(name)


def of(*shape: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def drawn(*shape: int, dtype: str = "float32") -> Any:
    return program_values.arguments(of(*shape, dtype=dtype), seed=sum(shape))


def key(seed: int = 0) -> Any:
    return jax.random.key(seed)


def loss_of(apply: Callable[..., Any]) -> Callable[..., Any]:
    """The mean square of every float that a function gives."""

    def loss(*args: Any) -> Any:
        leaves = [x for x in jax.tree.leaves(apply(*args)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum((x.astype("float32") ** 2).mean() for x in leaves)

    return loss


def trained(apply: Callable[..., Any], params: Any, *x: Any, optimizer: Any = None) -> Case:
    """A step of training: the loss and gradients, or what an optimizer makes of them."""
    loss = loss_of(apply)
    if optimizer is None:
        return Case(jax.value_and_grad(loss), (params, *x), weights=True)
    before = program_values.arguments(jax.eval_shape(lambda: params), seed=7)
    _, state = optimizer.update(before, optimizer.init(params), params)

    def step(params: Any, state: Any, *x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, *x)
        updates, state = optimizer.update(gradient, state, params)
        return jax.tree.map(lambda p, u: p + u, params, updates), state, value

    return Case(step, (params, state, *x), weights=True)


def graded(fn: Callable[..., Any], *args: Any) -> Case:
    """A function beside its gradient by the first argument."""
    return Case(lambda *given: (fn(*given), jax.grad(loss_of(fn))(*given)), args)
