"""Loops and branches: nested functions, and the calls of `lax` that run them.

Nested functions read constants from the enclosing function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.ops.literals import listed
from shardwright.codegen.partition.local.steps import Compute, LocalBody
from shardwright.codegen.text.python_text import fitted, fitted_call, indented, returned


class BodyWriter(Protocol):
    """An object that writes the statements of a body and knows the names of its local values."""

    names: LocalNames
    text: dict[int, str]

    def read(self, local: int) -> str:
        """Return the expression for a local value."""

    def alias(self, local: int, like: int) -> None:
        """Make `local` a synonym of `like`."""

    def body(self, body: LocalBody, indent: int) -> list[str]:
        """Return the lines of a body's steps."""


def control(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    """Return the lines of a step with bodies: a scan, a while loop, a cond, a `shard_map` or a
    checkpoint."""
    match step.op.kind:
        case "scan":
            return _scan(writer, step, indent)
        case "while":
            return _while(writer, step, indent)
        case "manual":
            return _manual(writer, step, indent)
        case "remat":
            return (
                _again(writer, step, indent)
                if step.op.param("again")
                else _remat(writer, step, indent)
            )
    return _cond(writer, step, indent)


def _function(
    writer: BodyWriter,
    head: list[str],
    start: list[str],
    body: LocalBody,
    indent: int,
    template: str = "",
) -> list[str]:
    """Return the lines of a nested function. `head`: the lines of its signature; `start`: the first
    lines of its body; `template`: the returned expression with results by number, by default a
    tuple of all results."""
    lines = writer.body(body, indent + 1)
    given = [writer.read(result) for result in body.results]
    text = template.format(*given) if template else listed(given)
    ends = returned(text, indent + 1)
    return [*head, *indented((*start, *lines, *ends)), ""]


def _named(writer: BodyWriter, locals_: Sequence[int]) -> list[str]:
    for local in locals_:
        writer.text[local] = writer.names.of(local)
    return [writer.text[local] for local in locals_]


def _shared(writer: BodyWriter, arguments: Sequence[int], operands: Sequence[int]) -> None:
    for argument, operand in zip(arguments, operands, strict=True):
        writer.alias(argument, operand)


def _unpacked(names: list[str], given: str, indent: int) -> list[str]:
    return fitted(f"{listed(names)} = {given}", indent + 1) if names else []


def _scan(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    (body,), op = step.bodies, step.op
    consts, carries, _ = op.integers("lengths")
    last = consts + carries
    operands = [writer.read(local) for local in step.operands]
    _shared(writer, body.arguments[:consts], step.operands[:consts])
    carry = _named(writer, body.arguments[consts:last])
    slices = _named(writer, body.arguments[last:])
    name, first, second = map(writer.names.fresh, ("iteration", "carry", "slices"))
    slots = [f"{{{place}}}" for place in range(len(body.results))]
    template = f"{listed(slots[:carries])}, {listed(slots[carries:])}"
    head = [f"def {name}({first}, {second}):"]
    start = [*_unpacked(carry, first, indent), *_unpacked(slices, second, indent)]
    lines = _function(writer, head, start, body, indent, template)
    arguments = [name, listed(operands[consts:last]), listed(operands[last:])]
    arguments.append(f"length={op.param('length')}")
    arguments += ["reverse=True"] if op.param("reverse") else []
    names = _named(writer, step.results)
    targets = (listed(part) if part else "_" for part in (names[:carries], names[carries:]))
    return [*lines, *fitted_call(f"{', '.join(targets)} = lax.scan", arguments, "", indent)]


def _while(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    cond, body = step.bodies
    first, second = step.op.integers("lengths")
    carried = [writer.read(local) for local in step.operands[first + second :]]
    _shared(writer, cond.arguments[:first], step.operands[:first])
    _shared(writer, body.arguments[:second], step.operands[first : first + second])
    lines, names = [], []
    for what, inner, count, gives in (
        ("condition", cond, first, "{0}"),
        ("iteration", body, second, ""),
    ):
        name, given = map(writer.names.fresh, (what, "carry"))
        start = _unpacked(_named(writer, inner.arguments[count:]), given, indent)
        lines += _function(writer, [f"def {name}({given}):"], start, inner, indent, gives)
        names.append(name)
    target = listed(_named(writer, step.results))
    return [
        *lines,
        *fitted_call(f"{target} = lax.while_loop", [*names, listed(carried)], "", indent),
    ]


def _again(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    """Return the statements that a backward pass recomputes, like `jax.checkpoint`. Their inputs
    pass a barrier, so that the compiler cannot reuse results of the forward pass."""
    (body,) = step.bodies
    given = [writer.read(local) for local in step.operands]
    target = listed(_named(writer, body.arguments))
    lines = ["# What follows is computed again for the backward pass, it is not kept."]
    lines += fitted_call(f"{target} = lax.optimization_barrier", [listed(given)], "", indent)
    lines += writer.body(body, indent)
    for result, inner in zip(step.results, body.results, strict=True):
        writer.alias(result, inner)
    return lines


def _manual(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    (body,), op = step.bodies, step.op
    given = [writer.read(local) for local in step.operands]
    name = writer.names.fresh(str(op.param("name")))
    arguments = _named(writer, body.arguments)
    axes = op.param("manual_axes")
    over = ", ".join(map(str, axes if isinstance(axes, tuple) else ()))
    head = fitted_call(f"def {name}", arguments, ":", indent)
    lines = _function(writer, head, [f"# As in shard_map over {over}."], body, indent)
    target = listed(_named(writer, step.results))
    return [*lines, *fitted_call(f"{target} = {name}", given, "", indent)]


def _remat(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    (body,), op = step.bodies, step.op
    given = [writer.read(local) for local in step.operands]
    name = writer.names.fresh("checkpointed")
    arguments = _named(writer, body.arguments)
    lines = _function(writer, fitted_call(f"def {name}", arguments, ":", indent), [], body, indent)
    ends = [f"policy={op.param('policy')}"] if op.param("policy") else []
    ends += [] if op.param("prevent_cse") else ["prevent_cse=False"]
    target = listed(_named(writer, step.results))
    lines += fitted_call(f"{name} = jax.checkpoint", [name, *ends], "", indent)
    return [*lines, *fitted_call(f"{target} = {name}", given, "", indent)]


def _cond(writer: BodyWriter, step: Compute, indent: int) -> list[str]:
    lines, names = [], []
    for branch in step.bodies:
        _shared(writer, branch.arguments, step.operands[1:])
        names.append(writer.names.fresh("branch"))
        lines += _function(writer, [f"def {names[-1]}():"], [], branch, indent)
    arguments = [writer.read(step.operands[0]), listed(names)]
    target = listed(_named(writer, step.results))
    return [*lines, *fitted_call(f"{target} = lax.switch", arguments, "", indent)]
