"""Find the calls of the user's functions that contain an equation, such as `norm(x, scale)`."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from shardwright.codegen.trace.lines import Lines, user_line
from shardwright.codegen.trace.words import Frames, function_of
from shardwright.ir.program import UserCall

JIT = ("jit", "pjit")
OWN_RULES = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""The primitives that call functions with their own derivatives, and the parameters that have their
jaxprs."""


class UserCalls:
    """Find the calls that contain an equation. JAX records calls of Python functions as frames, and
    calls of jitted functions as equations.

    `around`: the calls that contain the equation which is being inlined; `enclosing`: its frames;
    `base`: the calls of the innermost jitted function; `outside`: the frames of that function;
    `jitted`: its name."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.around: tuple[UserCall, ...] = ()
        self.enclosing: Frames = ()
        self.base: tuple[UserCall, ...] = ()
        self.outside: Frames = ()
        self.jitted = ""
        self.count = itertools.count()

    def of(self, equation: Any) -> tuple[UserCall, ...]:
        """Return the calls that contain an equation, outermost first. If JAX cached its trace for
        another caller, return the calls that are known."""
        found = self.lines.own_frames(equation)
        if found[len(found) - len(self.enclosing) :] != self.enclosing:
            return self.around
        inner = [*reversed(self._inside(found))]
        base = self.base
        if base and inner:  # the first frame is that of the jitted function itself
            base = (*base[:-1], self._at(base[-1], *inner[0]))
        return (*base, *self._calls(inner))

    def _inside(self, found: Frames) -> Frames:
        """Return the frames inside the innermost jitted function, including its own."""
        outer = len(found) - len(self.outside)
        if outer >= 0 and found[outer:] == self.outside:
            return found[:outer]
        names = [code.co_name for code, _ in found]
        return found[: names.index(self.jitted) + 1] if self.jitted in names else ()

    def _calls(self, frames: Sequence[tuple[CodeType, int]]) -> Iterator[UserCall]:
        for (outer, instruction), (code, inner) in itertools.pairwise(frames):
            defined = user_line(code.co_filename, code.co_firstlineno)
            line = user_line(outer.co_filename, _number(outer, instruction))
            yield self._at(
                UserCall(function_of(code), str(defined), instruction, line), code, inner
            )

    def _at(self, call: UserCall, code: CodeType, instruction: int) -> UserCall:
        operands, is_looped = self.lines.words.operands(code, instruction)
        return replace(call, at=instruction, is_looped=is_looped, operands=operands)

    @contextlib.contextmanager
    def inside(self, equation: Any) -> Iterator[None]:
        """Treat all equations that are read in this context as inside the calls of an equation."""
        before = dict(self.__dict__)
        found = self.lines.own_frames(equation)
        self.around = self.of(equation)
        self.enclosing = found
        if name := _jitted(equation):
            own = UserCall(name.strip("_<>"), "", next(self.count), self.lines.of(equation))
            self.base, self.outside, self.jitted = (*self.around, own), found, name
            self.around, self.enclosing = self.base, ()
        yield
        self.__dict__.update(before)


def _jitted(equation: Any) -> str:
    """Return the name of the function that an equation calls, or ""."""
    kind = equation.primitive.name
    if kind in JIT:
        return str(equation.params.get("name", ""))
    inner = equation.params.get(OWN_RULES[kind]) if kind in OWN_RULES else None
    inner = getattr(inner, "jaxpr", inner)
    return str(getattr(getattr(inner, "debug_info", None), "func_name", None) or "")


@functools.cache
def _numbers(code: CodeType) -> list[int]:
    return [place[0] or 0 for place in code.co_positions()]


def _number(code: CodeType, instruction: int) -> int:
    return _numbers(code)[instruction // 2]
