"""The text of a device's program, for debugging passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
)


def format_local(program: LocalProgram) -> str:
    """Format a device's program as text, one line per step: results with shapes and layouts, and
    moves with the bytes that they receive."""
    lines = [f"local program {program.program.name} {{", *_lines(program, program.body, "  "), "}"]
    for number, body in enumerate(program.functions):
        lines += [f"function {number} {{", *_lines(program, body, "  "), "}"]
    return "\n".join(lines) + "\n"


def _lines(program: LocalProgram, body: LocalBody, indent: str) -> Iterator[str]:
    for argument in body.arguments:
        yield f"{indent}argument {_defined(program, argument)}"
    for step in body.steps:
        results = ", ".join(_defined(program, result) for result in _results(step))
        yield f"{indent}{results} = {_said(step)}"
        if isinstance(step, Compute):
            for move in step.moves:
                yield f"{indent}  inside: {_said(move)}"
            for inner in step.bodies:
                yield f"{indent}  {{"
                yield from _lines(program, inner, indent + "    ")
                yield f"{indent}  }}"
    yield f"{indent}return {_numbers(body.results)}".rstrip()


def _results(step: Step) -> tuple[int, ...]:
    return (step.result,) if isinstance(step, MoveValue) else step.results


def _said(step: Step) -> str:
    match step:
        case MoveValue(change=change):
            axes = ", ".join(f'"{name}"' for name in change.axes)
            received = f", {size_text(change.received)}" if step.is_sent else ""
            return f"{change.op} %{step.operand} over {axes}{received}"
        case CallFunction():
            return f"function {step.function} {_numbers(step.operands)}".rstrip()
        case Compute():
            return f"{step.op.kind} {_numbers(step.operands)}".rstrip()


def _defined(program: LocalProgram, number: int) -> str:
    value, layout = program.of(number), program.values[number].layout
    shape = ", ".join(map(str, program.shape(number)))
    return f"%{number}: {value.name} {value.dtype}[{shape}] {layout}"


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(f"%{value}" for value in values)
