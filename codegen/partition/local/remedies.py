"""Remedies: changes by the user that make a communication unnecessary or cheaper. They concern the
sharding of an argument or a result, or a constraint at a line of the function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shardwright.codegen.partition.local.known import SAME
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.reasons import WHOLES, quoted
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LayoutChange,
    LocalBody,
    LocalProgram,
    MoveValue,
    moves_of,
)
from shardwright.ir.program import Line, Program, Value

Forward = Mapping[tuple[Line | None, tuple[int, ...], str], Value]


@dataclass(frozen=True)
class Remedy:
    """A change that would remove a communication or make it cheaper. `saved`: the bytes that it
    saves each time."""

    text: str
    saved: int


def forward_values(program: Program) -> Forward:
    """Return, for each line, shape and dtype, the last value that the forward pass produces
    there."""
    return {(v.line, v.shape, v.dtype): v for v in program.values if v.line and not v.backward}


def remedy(local: LocalProgram, step: MoveValue, forward: Forward) -> Remedy:
    """Return the remedy of a communication. `forward`: the values of the forward pass."""
    change, value = step.change, local.of(step.operand)
    before = local.values[step.operand].layout
    if change.own:
        return Remedy("nothing of ours: it stays as you wrote it", 0)
    if not change.layout.dims:
        return Remedy("nothing: it is one number", 0)
    if change.inside:
        return _asked(local, step, left_whole(before, change), forward)
    match change.kind:
        case "reduce_scatter":
            return Remedy("nothing: each device receives its own part of the sum alone", 0)
        case "all_reduce" if before.operator != "sum":
            return Remedy(f"nothing: {WHOLES[before.operator]} is made on every device", 0)
        case "all_reduce":
            split = next(scattered(local, step), None)
            if split is None:
                over = quoted(change.axes)
                text = f"nothing: no dimension of {value.name} can be split over {over} as well"
                return Remedy(text, 0)
            found = _asked(local, step, split, forward)
            if not found.saved:
                return found
            return Remedy(f"{found.text}: a reduce-scatter takes half", change.received // 2)
    return _asked(local, step, change.layout, forward)


def _asked(local: LocalProgram, step: MoveValue, wanted: LocalLayout, forward: Forward) -> Remedy:
    """Return the remedy that requests a layout for the value of a move, at a place where the user
    can state it."""
    value, received = local.of(step.operand), step.change.received
    arguments = arguments_of(local, step)
    if arguments:
        layout = local.axes.sharding(argument_layout(local, step.change, arguments[0]))
        others = f" and {len(arguments) - 1} like it" if len(arguments) > 1 else ""
        name = local.program.values[arguments[0]].name
        return Remedy(f"shard the argument {name}{others} as {layout}", received)
    is_reduced = step.change.kind == "all_reduce"
    kept = wanted if is_reduced else local.values[step.operand].layout
    for place in results_of(local, step):
        if not kept.partial:
            name = local.program.result_names[place]
            return Remedy(f"return {name} as {local.axes.sharding(kept)}", received)
    if wanted.partial:
        return Remedy(f"nothing: {value.name} is {WHOLES[wanted.operator]} of terms there", 0)
    where = f" at {value.line}" if value.line else ""
    if not value.backward:
        scope = f", in the scope {'/'.join(value.scope)}" if value.scope else ""
        text = f"constrain {value.name} to {local.axes.sharding(wanted)}{where}{scope}"
        return Remedy(text, received)
    primal = forward.get((value.line, value.shape, value.dtype))
    if primal is None:
        for place in results_of(local, step, through=True):
            name = local.program.result_names[place]
            return Remedy(f"return {name} split over {quoted(step.change.axes)}", received)
        return Remedy(f"nothing to constrain: {value.name} is of the backward pass{where}", 0)
    text = f"constrain {primal.name} to {local.axes.sharding(wanted)}{where}"
    return Remedy(f"{text}, which also constrains its gradient", received)


def scattered(local: LocalProgram, step: MoveValue) -> Iterator[LocalLayout]:
    """Yield the layouts to which a reduce-scatter could bring a sum, each splitting one dimension
    along the sum's axes."""
    change = step.change
    shape, sizes = local.of(step.operand).shape, local.axes
    for dim, (extent, names) in enumerate(zip(shape, change.layout.dims, strict=True)):
        split = (*names, *change.axes)
        if extent and extent % sizes.parts_of(split) == 0:
            yield change.layout.with_dim(dim, split)


def left_whole(layout: LocalLayout, change: LayoutChange) -> LocalLayout:
    """Return a layout without the axes of a change along the change's dimension."""
    (dim,) = change.dims
    return layout.with_dim(dim, (name for name in layout.dims[dim] if name not in change.axes))


def argument_layout(local: LocalProgram, change: LayoutChange, argument: int) -> LocalLayout:
    """Return a layout for an argument, given by its value's number, with which a change of it would
    be unnecessary."""
    if change.kind != "all_gather" and not change.inside:
        return change.layout
    (home,) = (
        local.values[v].layout for v in local.body.arguments if local.values[v].value == argument
    )
    return left_whole(home, change)


def arguments_of(local: LocalProgram, step: MoveValue) -> tuple[int, ...]:
    """Return the arguments of the program that a move applies to. For a move in a function, return
    the arguments that its calls pass."""
    arguments = {local.values[v].value for v in local.body.arguments}
    value = local.values[step.operand].value
    for number, body in enumerate(local.functions):
        if any(each is step for each, _ in moves_of(replace(local, body=body))):
            slots = [n for n, v in enumerate(body.arguments) if local.values[v].value == value]
            calls = (s for s in local.body.steps if isinstance(s, CallFunction))
            own = (
                local.values[call.operands[slot]].value
                for call in calls
                if call.function == number
                for slot in slots
            )
            return tuple(dict.fromkeys(each for each in own if each in arguments))
    return (value,) if value in arguments else ()


def results_of(local: LocalProgram, step: MoveValue, through: bool = False) -> Iterator[int]:
    """Yield the indices of the program's results that equal the result of a move, perhaps after
    later moves. `through`: whether ops that only reshape or cast count as moves too."""
    made_by: dict[int, int] = {}
    for each in local.body.steps:
        if isinstance(each, MoveValue) and each is not step:
            made_by[each.result] = each.operand
        elif through and isinstance(each, Compute) and each.op.kind in SAME:
            made_by[each.results[0]] = each.operands[0]
    for place, result in enumerate(local.body.results):
        at: int | None = result
        while at in made_by:
            at = made_by[at]
        if at == step.result:
            yield place


def outside_functions(local: LocalProgram) -> Iterator[tuple[MoveValue, int]]:
    """Yield the moves outside functions of equal layers, each with its count."""
    nothing = (LocalBody((), (), ()),) * len(local.functions)
    return moves_of(replace(local, functions=nothing))
