"""Convert a jaxpr to a program: inline calls, keep control flow, and make broadcasts explicit.

Each use of a literal becomes an op, so that uses of a constant are sharded independently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax.extend import core

from shardwright.codegen.ops.calls import CALLBACK
from shardwright.codegen.ops.collectives import COLLECTIVES
from shardwright.codegen.ops.table import ELEMENTWISE
from shardwright.codegen.propagate.rules import is_known
from shardwright.codegen.trace.asked import asked, branch_everywhere, check_manual, check_places
from shardwright.codegen.trace.avals import dtype_of, plain
from shardwright.codegen.trace.batched import traced_at
from shardwright.codegen.trace.control_flow import control, manual, scan, while_loop
from shardwright.codegen.trace.implemented import implemented
from shardwright.codegen.trace.lines import Lines
from shardwright.codegen.trace.meshes import ProgramMeshes
from shardwright.codegen.trace.naming import Noted
from shardwright.codegen.trace.opaque import (
    NO_RULE,
    OpaqueCall,
    has_kernel,
    kernel,
    opaque,
    partitioned_call,
)
from shardwright.codegen.trace.parameters import parameter_names
from shardwright.codegen.trace.params import Params, params_of
from shardwright.codegen.trace.reduced import halved
from shardwright.codegen.trace.remat import remat
from shardwright.codegen.trace.scopes import BACKWARD, scope_of
from shardwright.codegen.trace.sharding_rules import read_rule
from shardwright.codegen.trace.turned import REWRITTEN
from shardwright.codegen.trace.user_calls import UserCalls
from shardwright.codegen.trace.words import Phrase
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Body, Line, Op, UserCall, Value, ops_of
from shardwright.ir.sharding import Sharding

INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters that hold the jaxpr of a call
CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    }
)


class Tracer:
    """Convert a jaxpr and the jaxprs that it calls, adding to `values` and `warnings`."""

    def __init__(self, strict: bool, meshes: ProgramMeshes) -> None:
        self.values: list[Value] = []
        self.warnings: dict[str, set[int]] = {}  # by text, the values that each warning concerns
        self.groups: dict[Any, list[int]] = {}
        self.constants: list[Any] = []
        self.opaque: dict[tuple[object, ...], OpaqueCall] = {}  # by the key that equal calls share
        self.manual: frozenset[str] = frozenset()  # axes of the enclosing manual computations
        self.manual_mesh: Mesh | None = None  # the mesh of these computations
        self.strict, self.meshes = strict, meshes
        self.lines = Lines()
        self.user_calls = UserCalls(self.lines)
        self.calls: tuple[UserCall, ...] = ()  # around the current equation
        self.scope: tuple[str, ...] = ()  # of the current equation
        self.said = Phrase()  # the user's names for the current equation
        self.noted: dict[str, Noted] = {}  # by the name of the value
        self.counts: dict[str, int] = {}
        self.named: dict[int, str] = {}  # names for the arguments of bodies

    def body(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        names: Sequence[str],
        literals: Mapping[Any, Any] = MappingProxyType({}),
        other: str = "",
    ) -> Body:
        """Return a jaxpr as a separate body. Its constants become its first ops. `literals`: the
        arguments that are numbers, which get no name. An argument whose name is "" gets the name of
        its function's parameter, or else `other`."""
        block = _Block(self)
        own = parameter_names(jaxpr)
        taken = [variable for variable in jaxpr.invars if variable not in literals]
        arguments = tuple(
            block.bind(variable, name, own.get(variable, other))
            for variable, name in zip(taken, names, strict=True)
        )
        block.env.update((variable, block.read(atom)) for variable, atom in literals.items())
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            block.env[variable] = block.array(const)
        block.equations(jaxpr.eqns)
        results = tuple(block.read(atom) for atom in jaxpr.outvars)
        return Body(arguments, tuple(block.ops), results)

    def value(
        self,
        name: str,
        aval: Any,
        line: Line | None,
        sharding: Sharding | None = None,
        numbered: bool = True,
    ) -> int:
        """Return a new value. Its name gets a number if `numbered` is set or the name is taken."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        full = f"{name}_{count}" if numbered or count else name
        is_backward = self.scope[:1] == (BACKWARD,)
        scope = self.scope[is_backward:]
        self.noted[full] = Noted(name, not numbered, self.said, scope, is_backward)
        around = self.scope if scope else (*self.scope, *self.said.functions)
        shape, dtype = tuple(aval.shape), dtype_of(aval.dtype)
        self.values.append(Value(full, shape, dtype, sharding, line, around, calls=self.calls))
        return len(self.values) - 1

    def names_of(self, operands: Sequence[int]) -> list[str]:
        """Return names for the arguments of a body: the user's names for its operands, or "" for
        operands without a name."""
        return [self.named.get(operand, "") for operand in operands]

    def warn(self, said: str, line: Line | None, results: Sequence[int] = ()) -> None:
        """Record a warning about a line. It is issued if one of `results` is still in the program
        after dead ops are removed, or always if `results` is empty."""
        where = f"{line}: " if line else ""
        self.warnings.setdefault(f"{where}{said}", set()).update(results)

    def warnings_of(self, body: Body) -> tuple[str, ...]:
        """Return the warnings that concern a body from which dead ops have been removed.

        Raises InputError for a primitive without a rule if `strict` is set.
        """
        live = {result for op in ops_of(body) for result in op.results} | {*body.arguments}
        found = [text for text, about in self.warnings.items() if not about or about & live]
        for text in found if self.strict else ():
            if text.endswith(NO_RULE):
                raise InputError(
                    "with strict=True every primitive must have a rule",
                    argument="fn",
                    got=text.removesuffix(NO_RULE),
                    expected="a primitive with a rule, or strict=False to replicate its operands",
                )
        return tuple(found)


class _Block:
    """The ops of one body, and the values of the variables in scope."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.ops: list[Op] = []
        self.env: dict[Any, int] = {}

    def bind(self, variable: Any, name: str, other: str) -> int:
        value = self.tracer.value(name or other, variable.aval, None, numbered=False)
        self.tracer.named[value] = name
        self.env[variable] = value
        return value

    def array(self, const: Any) -> int:
        """Add an op for an array that the function closes over, and return its value. The op refers
        to the array by its index in the tracer's list."""
        self.tracer.constants.append(const)
        number = len(self.tracer.constants) - 1
        return self.add("constant", (), jax.typeof(const), None, (("array", number),))

    def read(self, atom: Any) -> int:
        if isinstance(atom, core.Literal):
            params: Params = (("value", plain(atom.val)),)
            return self.add("constant", (), atom.aval, None, params)
        return self.env[atom]

    def add(
        self,
        kind: str,
        operands: tuple[int, ...],
        aval: Any,
        line: Line | None,
        params: Params = (),
    ) -> int:
        name = "broadcast" if operands else kind
        result = self.tracer.value(name, aval, line)
        self.ops.append(Op(kind, operands, (result,), params, line=line))
        return result

    def equations(self, equations: Sequence[Any]) -> None:
        around, said, calls = self.tracer.scope, self.tracer.said, self.tracer.calls
        for equation in equations:
            self.tracer.scope = scope_of(equation, around)
            self.tracer.said = self.tracer.lines.said(equation)
            self.tracer.calls = self.tracer.user_calls.of(equation)
            name = equation.primitive.name
            handler = _HANDLERS.get(name, _Block.call if name in CALLS else _Block._plain)
            with self.tracer.lines.inside(equation), self.tracer.user_calls.inside(equation):
                results = handler(self, equation)
            self._note(equation, results)
            self.env.update(zip(equation.outvars, results, strict=True))
        self.tracer.scope, self.tracer.said, self.tracer.calls = around, said, calls

    def _note(self, equation: Any, results: Sequence[int]) -> None:
        """Note the equation of the op that was added last, and the names of its operands, unless an
        inner equation is already noted."""
        if len(results) != 1 or not self.ops or self.ops[-1].results != tuple(results):
            return
        values, noted = self.tracer.values, self.tracer.noted
        name = values[results[0]].name
        if noted[name].equation is None:
            operands = tuple(
                "" if isinstance(atom, core.Literal) else values[self.env[atom]].name
                for atom in equation.invars
            )
            noted[name] = replace(noted[name], equation=equation, operands=operands)

    def call(self, equation: Any) -> Sequence[int]:
        name = next(key for key in INLINED if key in equation.params)
        inner = equation.params[name]
        jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
        return self._inlined(equation, getattr(jaxpr, "jaxpr", jaxpr), consts, equation.invars)

    def _inlined(
        self, equation: Any, jaxpr: Any, consts: Sequence[Any], atoms: Sequence[Any]
    ) -> Sequence[int]:
        operands = [self.read(atom) for atom in atoms]
        block = _Block(self.tracer)
        block.ops = self.ops
        block.env.update(zip(jaxpr.invars, operands, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            block.env[variable] = block.array(const)
        lines = self.tracer.lines
        outer, lines.around = lines.around, lines.of(equation)
        block.equations(jaxpr.eqns)
        lines.around = outer
        return [block.read(atom) for atom in jaxpr.outvars]

    def _plain(self, equation: Any) -> Sequence[int]:
        kind, line = equation.primitive.name, self.tracer.lines.of(equation)
        if not equation.outvars:
            self.tracer.warn(f"{kind} returns no value and is left out", line)
            return ()
        if not is_known(kind) and (found := implemented(equation)) is not None:
            return self._inlined(equation, found.jaxpr, found.consts, equation.invars)
        operands = [self.read(atom) for atom in equation.invars]
        if kind in ELEMENTWISE:
            operands = self._broadcasts(kind, operands, equation.outvars[0].aval, line)
        results = tuple(self.tracer.value(kind, v.aval, line) for v in equation.outvars)
        if kind == CALLBACK or not is_known(kind):
            self.tracer.warn(f"{kind}{NO_RULE}", line, results)
        params = params_of(kind, equation.params)
        if kind in COLLECTIVES and len(results) > 1:  # one collective per operand
            pairs = zip(operands, results, strict=True)
            self.ops += (Op(kind, (one,), (made,), params, line=line) for one, made in pairs)
            return results
        self.ops.append(Op(kind, tuple(operands), results, params, line=line))
        return results

    def _broadcasts(
        self, kind: str, operands: list[int], aval: Any, line: Line | None
    ) -> list[int]:
        """Broadcast operands to the result's shape, except a scalar predicate of a select."""
        shape = tuple(aval.shape)
        out = []
        for place, operand in enumerate(operands):
            given = self.tracer.values[operand]
            if given.shape != shape and not (kind == "select_n" and place == 0):
                dims = tuple(range(len(shape) - len(given.shape), len(shape)))
                params = (("broadcast_dimensions", dims), ("shape", shape))
                wide = jax.ShapeDtypeStruct(shape, aval.dtype)
                operand = self.add("broadcast_in_dim", (operand,), wide, line, params)
                old = self.tracer.values[operand]
                self.tracer.values[operand] = replace(old, dtype=given.dtype)
            out.append(operand)
        return out

    def _constraint(self, equation: Any) -> Sequence[int]:
        aval, line = equation.outvars[0].aval, self.tracer.lines.of(equation)
        try:
            sharding = asked(self.tracer.meshes, equation, len(aval.shape))
            check_manual(sharding, self.tracer.manual_mesh, self.tracer.manual)
        except InputError as error:
            raise error.named(f"constrain, {line}" if line else "constrain") from None
        operand = self.read(equation.invars[0])
        result = self.tracer.value("constrain", aval, line, sharding)
        params = (("sharding", sharding),)
        self.ops.append(Op("constrain", (operand,), (result,), params, line=line))
        return (result,)

    def _solved(self, equation: Any) -> Sequence[int]:
        """Inline the `solve` function of `lax.custom_linear_solve`, and return its results. Its
        other functions are only needed for its derivative."""
        lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
        first = lengths.matvec + lengths.vecmat
        consts = equation.invars[first : first + lengths.solve]
        given = equation.invars[sum(lengths) :]
        solve = jaxprs.solve
        return self._inlined(equation, solve.jaxpr, solve.consts, [*consts, *given])

    def _reduced(self, equation: Any) -> Sequence[int]:
        """Inline a `lax.reduce` with the user's own function, and return its results."""
        closed = traced_at(equation, halved(equation), [v.aval for v in equation.invars])
        return self._inlined(equation, closed.jaxpr, closed.consts, equation.invars)

    def _empty(self, equation: Any) -> Sequence[int]:
        """Add a zero for a value that is never read, such as the missing gradient of a branch, and
        return it."""
        aval = equation.outvars[0].aval
        return [self.add("constant", (), aval, None, (("value", plain(np.zeros((), aval.dtype))),))]

    def _group(self, equation: Any) -> Sequence[int]:
        operand = self.read(equation.invars[0])
        self.tracer.groups.setdefault(equation.params["group"], []).append(operand)
        return (operand,)

    def _alike(self, equation: Any) -> Sequence[int]:
        """Record both operands of `jax.experimental.shard_alike` as a group, and return them as its
        results."""
        operands = self._same(equation)
        self.tracer.groups[equation] = list(operands)
        return operands

    def _own_partitioning(self, equation: Any) -> Sequence[int]:
        """Return the results of a function under `custom_partitioning`. If the function calls a
        kernel, has a `sharding_rule` and is not inside a `shard_map`, it becomes one op, which this
        rule splits; otherwise its own ops are inlined."""
        call, line = equation.params["call"], self.tracer.lines.of(equation)
        has_rule = equation.params["sharding_rule"] is not None
        if has_rule and not self.tracer.manual and has_kernel(call.jaxpr):
            rule = read_rule(equation.params, self.tracer.meshes.first, line)
            return opaque(self, equation, partitioned_call(equation, line), rule)
        results = self._inlined(equation, call.jaxpr, call.consts, equation.invars)
        said = "the function under custom_partitioning is split operation by operation"
        self.tracer.warn(f"{said}; its partition function is not called", line, results)
        return results

    def _same(self, equation: Any) -> Sequence[int]:
        """Return the operands as the results: the primitive only changes a type that matters inside
        `shard_map`."""
        return [self.read(atom) for atom in equation.invars]

    def _placed(self, equation: Any) -> Sequence[int]:
        """Return the operands of a `device_put` as its results. Raises InputError if it names a
        device."""
        check_places(equation.params["devices"], self.tracer.lines.of(equation))
        return self._same(equation)

    def _cond(self, equation: Any) -> Sequence[int]:
        branches = list(equation.params["branches"])
        platforms = equation.params.get("branches_platforms")
        if platforms is None:
            return control(self, "cond", equation, branches, ())
        taken = branches[branch_everywhere(platforms, self.tracer.lines.of(equation))]
        return self._inlined(equation, taken.jaxpr, taken.consts, equation.invars[1:])


_HANDLERS: dict[str, Callable[[_Block, Any], Sequence[int]]] = {
    "sharding_constraint": _Block._constraint,
    "reshard": _Block._constraint,
    "shardwright_constrain": _Block._constraint,
    "shardwright_alike": _Block._group,
    "shard_alike": _Block._alike,
    "custom_partitioning": _Block._own_partitioning,
    "pallas_call": kernel,
    "checkpoint": remat,
    "remat2": remat,
    "custom_linear_solve": _Block._solved,
    "reduce": _Block._reduced,
    "empty2": _Block._empty,
    "platform_index": _Block._empty,
    "pvary": _Block._same,
    "pcast": _Block._same,
    "device_put": _Block._placed,
    "scan": scan,
    "while": while_loop,
    "cond": _Block._cond,
    "shard_map": manual,
    **REWRITTEN,
}
