"""JAX's rules for the gradients of single ops: the ops that compute each operand's gradient term
from the gradient of the result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from shardwright.codegen.trace.naming import Noted
from shardwright.codegen.trace.params import params_of
from shardwright.ir.program import Body, Op, Value

Read = Callable[[Any], tuple[Body, Sequence[Value]]]
"""A function that converts a closed jaxpr to a body and its values."""


def is_float(dtype: str) -> bool:
    """Return whether values of a dtype have gradients.

    >>> is_float("f32"), is_float("bf16"), is_float("i32"), is_float("bool"), is_float("key<fry>")
    (True, True, False, False, False)
    """
    return dtype.startswith(("f", "bf", "c"))


@dataclass(frozen=True)
class Transpose:
    """The ops that compute the terms of an op's operands. `gradient`: the value for the gradient of
    the result; `operands`: the values for the operands that are not literals; `terms`: the value of
    each operand's term, or None."""

    kind: str
    ops: tuple[Op, ...]
    values: Sequence[Value]
    gradient: int
    operands: tuple[int, ...]
    terms: tuple[int | None, ...]


MOST = 4096
"""The most rules to cache."""
_SHARED: dict[Hashable, Transpose | None] = {}


class Transposes:
    """The rules for the ops of a program. Ops that differ only in their values share a rule, even
    between programs.

    `noted`: the equation of each value, by the value's name; `read`: converts a jaxpr to ops."""

    def __init__(self, values: Sequence[Value], noted: Mapping[str, Noted], read: Read) -> None:
        self.values, self.noted, self.read = values, noted, read
        self._numbers = {value.name: number for number, value in enumerate(values)}
        self._own: dict[Hashable, Transpose | None] = {}

    def operands(self, result: int) -> tuple[int | None, ...] | None:
        """Return the operands of the equation that produces a value, with None for literals. Return
        None if the equation is unknown."""
        note = self.noted[self.values[result].name]
        if note.equation is None:
            return None
        return tuple(self._numbers[name] if name else None for name in note.operands)

    def of(self, result: int) -> Transpose | None:
        """Return the rule for the op that produces a value, or None."""
        equation = self.noted[self.values[result].name].equation
        if equation is None or not _is_plain(equation):
            return None
        key, known = _key(equation), self._own if _is_sharded(equation) else _SHARED
        if key not in known:
            if len(known) == MOST:
                known.clear()
            known[key] = self._rule(equation)
        return known[key]

    def _rule(self, equation: Any) -> Transpose | None:
        given = [atom for atom in equation.invars if not isinstance(atom, core.Literal)]
        places = [n for n, atom in enumerate(given) if is_float(_dtype(atom))]
        if not places:
            return None

        def terms(gradient: Any, *operands: Any) -> Any:
            def run(*own: Any) -> Any:
                filled = list(operands)
                for place, each in zip(places, own, strict=True):
                    filled[place] = each
                rest = iter(filled)
                every = [
                    a.val if isinstance(a, core.Literal) else next(rest) for a in equation.invars
                ]
                return equation.primitive.bind(*every, **equation.params)

            return jax.vjp(run, *(operands[place] for place in places))[1](gradient)

        avals = [jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype) for a in given]
        out = equation.outvars[0].aval
        try:
            closed = jax.make_jaxpr(terms)(jax.ShapeDtypeStruct(out.shape, out.dtype), *avals)
        except (NotImplementedError, TypeError, ValueError):
            return None  # the op has no derivative, or has one only inside a shard_map
        body, values = self.read(closed)
        gradient, *operands = body.arguments
        made = iter(body.results)
        own = iter([next(made) if n in places else None for n in range(len(given))])
        found = (None if isinstance(a, core.Literal) else next(own) for a in equation.invars)
        kind = equation.primitive.name
        return Transpose(kind, body.ops, values, gradient, tuple(operands), tuple(found))


def _dtype(atom: Any) -> str:
    dtype = atom.aval.dtype
    return "f" if jax.numpy.issubdtype(dtype, jax.numpy.inexact) else "i"


def _is_plain(equation: Any) -> bool:
    """Return whether an equation has one result and contains no jaxpr or function."""
    held = equation.params.values()
    has_jaxpr = any(isinstance(each, core.Jaxpr | core.ClosedJaxpr) for each in held)
    return len(equation.outvars) == 1 and not has_jaxpr


def _is_sharded(equation: Any) -> bool:
    """Return whether an equation names a sharding, on a mesh that other programs may lack."""
    return any("sharding" in name and value is not None for name, value in equation.params.items())


def _key(equation: Any) -> Hashable:
    params = params_of(equation.primitive.name, equation.params)
    atoms = tuple(
        (str(atom.aval), repr(atom.val) if isinstance(atom, core.Literal) else None)
        for atom in equation.invars
    )
    return equation.primitive.name, params, atoms
