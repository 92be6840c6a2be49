"""Remedies: changes by the user that make a communication unnecessary or cheaper. They affect the
sharding of an argument or a result, or a constraint at a line of the function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.moves.move import LayoutMove
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.flow import Asked, ValueFlow
from shardwright.codegen.partition.local.known import SAME
from shardwright.codegen.partition.local.reasons import WHOLES, quoted
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    calls_of,
    item_bytes,
    moves_of,
)
from shardwright.codegen.partition.local.twins import twins_of, words_of


@dataclass(frozen=True)
class Remedy:
    """A change that would make a communication unnecessary or cheaper. `saved`: the bytes that it
    saves each time."""

    text: str
    saved: int


def remedy(flow: ValueFlow, step: MoveValue) -> Remedy:
    """Return the remedy for a communication of the program of `flow`."""
    local, change = flow.local, step.change
    before = local.values[step.operand].layout
    if step.own:
        return Remedy("nothing of ours: it stays as you wrote it", 0)
    if not change.after.dims:
        return Remedy("nothing: it is one number", 0)
    if step.inside:
        return _asked(flow, step, left_whole(before, change))
    match change.op:
        case "reduce_scatter":
            return Remedy("nothing: each device receives its own part of the sum alone", 0)
        case "all_reduce" if before.operator != "sum":
            return Remedy(f"nothing: {WHOLES[before.operator]} is made on every device", 0)
        case "all_reduce":
            split = next(scattered(local, step), None)
            if split is None:
                name, over = local.of(step.operand).name, quoted(change.axes)
                text = f"nothing: no dimension of {name} can be split over {over} as well"
                return Remedy(text, 0)
            found = _asked(flow, step, split)
            if not found.saved:
                return found
            return Remedy(f"{found.text}: a reduce-scatter takes half", change.received // 2)
    return _asked(flow, step, change.after)


def _asked(flow: ValueFlow, step: MoveValue, wanted: LocalLayout) -> Remedy:
    """Return the remedy that requests a layout for the value of a move, at a place where the user
    can state it."""
    local, received = flow.local, step.change.received
    value = local.of(step.operand)
    if arguments := arguments_of(flow, step):
        return Remedy(_of_arguments(local, step, arguments), received)
    is_reduced = step.change.op == "all_reduce"
    kept = wanted if is_reduced else local.values[step.operand].layout
    places = [*results_of(local, step)]
    if places and not kept.partial:
        said = f"return {_results(local, places)} as {local.axes.sharding(kept)}"
        return Remedy(f"{said}{_fed_back(local, places[0])}", received)
    if wanted.partial:
        return Remedy(f"nothing: {value.name} is {WHOLES[wanted.operator]} of terms there", 0)
    saved = received if is_reduced else flow.saved(step)
    if saved <= 0:
        over = quoted(step.change.axes)
        text = f"nothing: it is computed from values split over {over}"
        return Remedy(f"{text}, which are no smaller", 0)
    own = Asked(local.values[step.operand].value, wanted)
    if not value.backward:
        passed = [Asked(v, wanted) for v in passed_to(flow, step.operand)]
        alike = 1 if passed else flow.calls(step)
        return _constrained(flow, passed or [own], alike, saved)
    places = [*results_of(local, step, through=True)]
    if places:
        over = quoted(step.change.axes)
        return Remedy(f"return {_results(local, places)} split over {over}", saved)
    primal = flow.primal(own)
    if primal is None:
        at = f" at {value.line}" if value.line else ""
        return Remedy(f"nothing to constrain: it is of the backward pass{at}", 0)
    found = _constrained(flow, [primal], flow.calls(step), saved)
    if not found.saved:
        return found
    return replace(found, text=f"{found.text}, which also constrains its gradient")


def _constrained(flow: ValueFlow, given: Sequence[Asked], alike: int, saved: int) -> Remedy:
    """Return the remedy that constrains values of the forward pass, each of which is an argument or
    an expression of the user, or a part of one. `alike`: the number of equal layers that contain
    it."""
    local, first = flow.local, given[0]
    if first.value in local.program.body.arguments:
        name = f"{local.program.argument_name(first.value)}{others(range(alike))}"
        asked = local.axes.sharding(first.layout)
        return Remedy(
            f"shard the argument {name} as {asked}{twins_of(local, first.value).said}", saved
        )
    places = [flow.whole(each) for each in given]
    if None in places:
        value = local.program.values[first.value]
        at = f" at {value.line}" if value.line else ""
        return Remedy(f"nothing to constrain: it is only part of an expression{at}", 0)
    layers = f", for each of {alike} layers" if alike > 1 else ""
    every = (
        written.constrained(str(local.axes.sharding(each.layout)), layers)
        for each in places
        if each is not None and (written := local.program.values[each.value].written)
    )
    return Remedy("; ".join(dict.fromkeys(every)), saved)


def _of_arguments(local: LocalProgram, step: MoveValue, arguments: Sequence[int]) -> str:
    """Return the text of the remedy that shards arguments as an operation needs them, with the
    bytes that each device then has."""
    value, layout = local.program.values[arguments[0]], argument_layout(local, step, arguments[0])
    homes = {local.values[v].value: local.values[v].layout for v in local.body.arguments}
    before, after = (
        math.prod(own.local(value.shape, local.axes.sizes)) * item_bytes(value.dtype)
        for own in (homes[arguments[0]], layout)
    )
    name = f"{local.program.argument_name(arguments[0])}{others(arguments)}"
    twins = twins_of(local, arguments[0]).said
    text = f"shard the argument {name} as {local.axes.sharding(layout)}{twins}"
    if after <= before:
        return text
    return f"{text}; each device then holds {size_text(after)} instead of {size_text(before)} of it"


def _results(local: LocalProgram, places: Sequence[int]) -> str:
    return f"{local.program.result_names[places[0]]}{others(places)}"


def _fed_back(local: LocalProgram, place: int) -> str:
    """Return the clause about the argument that a result may become in the next call, one of the
    same type and keys: `params["w1"]` for `result[0]["w1"]`. Return "" if there is none."""
    result = local.program.values[local.program.body.results[place]]
    keys = words_of(local.program.result_names[place])[2:]
    for number in local.program.body.arguments if keys else ():
        own = local.program.values[number]
        is_alike = (own.shape, own.dtype) == (result.shape, result.dtype)
        if is_alike and own.name.endswith(f"_{'_'.join(keys)}"):
            name = local.program.argument_name(number)
            return f" (and the argument {name} alike, if this result is its next value)"
    return ""


def others(items: Sequence[object]) -> str:
    """Return the words that follow the first of several alike arguments or results."""
    return f" and {len(items) - 1} like it" if len(items) > 1 else ""


def in_source(flow: ValueFlow, step: MoveValue) -> str:
    """Return the operand of a move in terms of the user's source: a variable or an expression, a
    result or the gradient of a variable or an argument. Return its own name and line if it is none
    of these."""
    value = flow.local.of(step.operand)
    if value.written and not value.backward:
        return value.written.text
    places = [*results_of(flow.local, step, through=True)]
    if places:
        return f"the value that becomes {_results(flow.local, places)}"
    own: Asked | None = Asked(flow.local.values[step.operand].value, step.change.after)
    if own is not None and value.backward:
        own = flow.primal(own)
    if own is not None and value.backward and own.value in flow.local.program.body.arguments:
        return f"the gradient of {flow.local.program.argument_name(own.value)}"
    whole = None if own is None else flow.whole(own)
    written = None if whole is None else flow.local.program.values[whole.value].written
    if written is not None:
        return f"the gradient of {written.text}" if value.backward else written.text
    return f"{value.name} at {value.line}" if value.line else value.name


def scattered(local: LocalProgram, step: MoveValue) -> Iterator[LocalLayout]:
    """Yield the layouts to which a reduce-scatter could bring a sum, each of which splits one
    dimension along the sum's axes."""
    change = step.change
    shape, sizes = local.of(step.operand).shape, local.axes
    for dim, (extent, names) in enumerate(zip(shape, change.after.dims, strict=True)):
        split = (*names, *change.axes)
        if extent and extent % sizes.parts_of(split) == 0:
            yield change.after.with_dim(dim, split)


def left_whole(layout: LocalLayout, change: LayoutMove) -> LocalLayout:
    """Return a layout without the axes of a change."""
    dims = (tuple(name for name in dim if name not in change.axes) for dim in layout.dims)
    return replace(layout, dims=tuple(dims))


def argument_layout(local: LocalProgram, step: MoveValue, argument: int) -> LocalLayout:
    """Return the layout of an argument with which a move would be unnecessary. `argument`: the
    number of its value."""
    if step.change.op != "all_gather" and not step.inside:
        return step.change.after
    (home,) = (
        local.values[v].layout for v in local.body.arguments if local.values[v].value == argument
    )
    return left_whole(home, step.change)


def arguments_of(flow: ValueFlow, step: MoveValue) -> tuple[int, ...]:
    """Return the arguments of the program to which a move applies. For a move in a function, return
    the arguments that its calls pass."""
    arguments = {flow.local.values[v].value for v in flow.local.body.arguments}
    is_gather = step.change.op == "all_gather" and not step.inside
    passed = passed_to(flow, flow.view_of(step.operand) if is_gather else step.operand)
    return tuple(dict.fromkeys(each for each in passed if each in arguments))


def passed_to(flow: ValueFlow, operand: int) -> list[int]:
    """Return the program's values that a local value stands for. For an argument of a function,
    these are the values that calls pass; for any other value in a function, there are none."""
    local = flow.local
    value = local.values[operand].value
    number = flow.functions.get(operand)
    if number is None:
        return [value]
    arguments = local.functions[number].arguments
    slots = [n for n, v in enumerate(arguments) if local.values[v].value == value]
    calls = calls_of(local, number)
    return [local.values[each.operands[slot]].value for each in calls for slot in slots]


def results_of(local: LocalProgram, step: MoveValue, through: bool = False) -> Iterator[int]:
    """Yield the indices of the program's results that equal the result of a move, possibly after
    later moves; for a move in a function, those of all calls. `through`: whether ops that only
    reshape or cast count as moves too."""
    made_by: dict[int, int] = {}
    for body in (local.body, *local.functions):
        for each in body.steps:
            if isinstance(each, MoveValue) and each is not step:
                made_by[each.result] = each.operand
            elif through and isinstance(each, Compute) and each.op.kind in SAME:
                made_by[each.results[0]] = each.operands[0]
    for number, body in enumerate(local.functions):
        for call in calls_of(local, number):
            made_by.update(zip(call.results, body.results, strict=True))
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
