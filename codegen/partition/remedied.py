"""What a remedy does in all: the program with an argument left whole where a communication gathers
it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.partition.local.layout import Names
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    LocalProgram,
    MoveValue,
    moves_of,
)
from shardwright.codegen.propagate.parts import merged, ref_of
from shardwright.ir.errors import InputError
from shardwright.ir.program import Program
from shardwright.ir.sharding import DimSharding, Sharding


def remedied(given: Program, local: LocalProgram, number: int) -> Program:
    """Return a program as it was given, but that the argument which a communication gathers, by its
    number, is not split there; in a function, that of every call.

    Raises InputError where the communication gathers no argument.
    """
    found = [step for step, _ in moves_of(local) if step.change.received]
    if not 1 <= number <= len(found):
        raise InputError(
            "a communication has a number of the program",
            argument="number",
            got=number,
            expected=f"1 to {len(found)}" if found else "none: there are no communications",
        )
    step = found[number - 1]
    values = set(_arguments(local, step)) if step.change.kind == "all_gather" else set()
    if not values:
        raise InputError(
            "what a remedy does in all is known of arguments that are gathered",
            argument="number",
            got=f"C{number}, a {step.change.collective.replace('_', '-')} of "
            f"{local.of(step.operand).name}",
            expected="the number of a gather of an argument; of another value, constrain it in "
            "the function and partition again",
        )
    homes = {local.values[v].value: local.values[v].layout for v in local.body.arguments}
    new = list(given.values)
    for value in values:
        dim = step.change.dims[0]
        left = tuple(n for n in homes[value].dims[dim] if n not in step.change.axes)
        new[value] = replace(
            new[value], sharding=_sharding(local, homes[value].with_dim(dim, left).dims)
        )
    return replace(given, values=tuple(new))


def gathered_arguments(local: LocalProgram) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of the communications that gather arguments, those of one remedy
    together."""
    numbers: dict[object, list[int]] = {}
    moves = (step for step, _ in moves_of(local) if step.change.received)
    for number, step in enumerate(moves, 1):
        values = frozenset(_arguments(local, step))
        if values and step.change.kind == "all_gather":
            key = values, step.change.dims, step.change.axes
            numbers.setdefault(key, []).append(number)
    yield from map(tuple, numbers.values())


def _arguments(local: LocalProgram, step: MoveValue) -> Iterator[int]:
    """Yield the arguments of the program that a move is of."""
    arguments = {local.values[v].value for v in local.body.arguments}
    value = local.values[step.operand].value
    for number, body in enumerate(local.functions):
        if any(step is inner for inner in body.steps):
            slots = [n for n, v in enumerate(body.arguments) if local.values[v].value == value]
            calls = (s for s in local.body.steps if isinstance(s, CallFunction))
            for call in (each for each in calls if each.function == number):
                own = {local.values[call.operands[slot]].value for slot in slots}
                yield from own & arguments
            return
    if value in arguments:
        yield value


def _sharding(local: LocalProgram, dims: tuple[Names, ...]) -> Sharding:
    """Return the sharding that a layout is, its dimensions closed."""
    mesh, axes = local.axes.mesh, local.axes
    known = {name: part for (name, _), part in zip(axes.pieces, axes.parts, strict=True)}
    parts = (merged(known[name] for name in names) for names in dims)
    made = (DimSharding(tuple(ref_of(each, mesh.sizes) for each in own)) for own in parts)
    return Sharding(mesh, tuple(made))
