"""Trace calls that cannot be written as Python text: `pallas_call`, and functions under
`custom_partitioning` that contain one. A module stores such a call as StableHLO for the shapes of
shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from shardwright.codegen.trace.batched import traced_at
from shardwright.codegen.trace.params import Params
from shardwright.codegen.trace.stacks import OpBlock
from shardwright.ir.program import Line, Op, Rule

KERNEL = "pallas_call"
NO_RULE = " has no rule: its operands are replicated"


@dataclass(frozen=True)
class Partitioning:
    """The partition function given to `def_partition`, its static arguments, and the trees of the
    call's arguments and results."""

    partition: Callable[..., Any]
    static: tuple[Any, ...]
    inputs: Any  # the tree of the arguments
    outputs: Any


@dataclass(frozen=True)
class OpaqueCall:
    """A call: its name, its jaxpr for unsplit tensors, the line of the user's code, and the
    function that partitions it, or None if it cannot be split."""

    name: str
    jaxpr: Any
    line: Line | None
    partitioning: Partitioning | None = None

    @property
    def same(self) -> tuple[object, ...]:
        """The key that equal calls share, such as the calls of equal layers."""
        own = self.partitioning
        how = None if own is None else (id(own.partition), repr(own.static))
        return self.name, str(self.jaxpr), tuple(map(id, _constants(self.jaxpr))), how


def kernel(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add the op of a Pallas kernel, and return its results. Outside `shard_map`, every device runs
    the kernel on whole tensors, and a warning says so."""
    line = block.tracer.lines.of(equation)
    results = opaque(block, equation, kernel_call(equation, line), None)
    if not block.tracer.manual:
        block.tracer.warn(f"{equation.primitive.name}{NO_RULE}", line, results)
    return results


def opaque(block: OpBlock, equation: Any, call: OpaqueCall, rule: Rule | None) -> Sequence[int]:
    """Add the op of a call, which is split by `rule` if there is one, and return its results."""
    tracer, kind = block.tracer, equation.primitive.name
    tracer.opaque.setdefault(call.same, call)
    number = [*tracer.opaque].index(call.same)
    results = tuple(tracer.value(call.name, v.aval, call.line) for v in equation.outvars)
    operands = tuple(map(block.read, equation.invars))
    params: Params = (("call", number), ("name", call.name))
    block.ops.append(Op(kind, operands, results, params, rule=rule, line=call.line))
    return results


def kernel_call(equation: Any, line: Line | None) -> OpaqueCall:
    """Return the call of a Pallas kernel. Its types do not mention the axes of an enclosing
    `shard_map`."""
    params = equation.params
    results, operands = (_plain(side) for side in (equation.outvars, equation.invars))

    def bound(*args: Any) -> Any:
        return equation.primitive.bind(*args, **{**params, "out_avals": tuple(results)})

    inner = getattr(params["jaxpr"], "debug_info", None)
    name = params.get("name") or getattr(inner, "func_name", "")
    return OpaqueCall(_identifier(name), traced_at(equation, bound, operands), line)


def partitioned_call(equation: Any, line: Line | None) -> OpaqueCall:
    """Return the call of a function under `custom_partitioning`."""
    params = equation.params
    trees = params["in_tree"], params["out_tree"]
    own = Partitioning(params["partition"], tuple(params["static_args"]), *trees)
    name = _identifier(params["call"].jaxpr.debug_info.func_name)
    return OpaqueCall(name, params["call"], line, own)


def has_kernel(jaxpr: Any) -> bool:
    """Return whether a jaxpr calls a Pallas kernel, at any depth."""
    return any(
        equation.primitive.name == KERNEL or any(has_kernel(each) for each in _inner(equation))
        for equation in jaxpr.eqns
    )


def _inner(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, core.Jaxpr | core.ClosedJaxpr):
                yield each


def _constants(jaxpr: Any) -> Iterator[Any]:
    """Yield the arrays that a jaxpr and its inner jaxprs close over, which the text of jaxprs
    omits."""
    yield from getattr(jaxpr, "consts", ())
    for equation in jaxpr.eqns:
        for each in _inner(equation):
            yield from _constants(each)


def _plain(variables: Any) -> list[Any]:
    """Return the types of variables without the manual axes along which they vary."""
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables]
    return list(jax.make_jaxpr(lambda *args: args)(*avals).in_avals)


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "kernel"
