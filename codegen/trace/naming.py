"""Name a program's values, after the user's code where possible.

The value of a whole expression is named after the variable to which it is assigned, or after the
function that returns it. The value of a named scope is named after the scope. All other names
combine a value's scope, or the variable of its line, with its op: `query_dot`, `h_tanh`. In a
backward pass, `d_h` is the gradient of `h`, and any other value has a name such as
`bwd_query_dot`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from shardwright.codegen.ops.table import word_of
from shardwright.codegen.trace.gradients import Gradients
from shardwright.codegen.trace.lines import user_line
from shardwright.codegen.trace.words import Phrase
from shardwright.ir.program import Op, Program, Written, ops_of


@dataclass(frozen=True)
class Noted:
    """What tracing notes about a value. `name`: its name if it is `given`, otherwise the kind of
    its op; `said`: the user's names for it; `scope`: its named scopes; `backward`: whether a
    backward pass produces it; `equation`: the equation of its op, if that has only this result;
    `operands`: the names of the equation's operands, "" for literals."""

    name: str
    given: bool
    said: Phrase
    scope: tuple[str, ...]
    backward: bool
    equation: Any = None
    operands: tuple[str, ...] = ()


def named(
    program: Program,
    noted: Mapping[str, Noted],
    gradients: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Program:
    """Return a program whose values have distinct new names. `noted`: the notes about each value,
    by its old name; `gradients`: the values whose gradient each value is, by its old name.

    The copies `c.2`, `c.3` of a constant keep their numbers."""
    wanted, chosen = _wanted(program, noted)
    written = dict(_written(program, noted))
    numbers = {value.name: number for number, value in enumerate(program.values)}
    own = (
        (numbers[name], tuple(numbers[each] for each in of if each in numbers))
        for name, of in gradients.items()
        if name in numbers
    )
    found = Gradients(program, {value: of for value, of in own if of}, chosen)
    taken: set[str] = set()
    names: dict[str, str] = {}
    for number, (value, name) in enumerate(zip(program.values, wanted, strict=True)):
        stem = value.name.partition(".")[0]
        if stem not in names and number not in found.suffixes:
            names[stem] = _free(name, taken)
    for number, suffix in sorted(found.suffixes.items()):
        of = names[program.values[found.primals[number][0]].name]
        names[program.values[number].name] = _free(f"d_{of}{suffix}", taken, "_again")
    values = []
    for number, value in enumerate(program.values):
        stem, dot, copy = value.name.partition(".")
        of_names = tuple(names[program.values[v].name] for v in found.primals.get(number, ()))
        full, backward = f"{names[stem]}{dot}{copy}", noted[stem].backward
        made = replace(value, name=full, backward=backward, gradient_of=of_names)
        values.append(replace(made, written=written.get(number), is_named=number in chosen))
    return replace(program, values=tuple(values))


def _free(name: str, taken: set[str], more: str = "") -> str:
    """Return a name that is not taken, with `more` and a number if necessary, and add it to
    `taken`."""
    if name in taken:
        name += more
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _written(program: Program, noted: Mapping[str, Noted]) -> Iterator[tuple[int, Written]]:
    """Yield the forward pass's values of whole expressions of the user, each with its place in the
    source."""
    notes = _notes(program, noted)
    users, ends = _uses(program, notes)
    outer = {result for op in program.body.ops for result in op.results}

    def is_whole(result: int) -> bool:
        place = notes[result].said.place
        after = [user for user in users[result] if not user.backward]
        is_alone = not after and len(op.results) == 1 and op.kind == notes[result].said.operator
        return is_alone or result in ends or any(user.said.place != place for user in after)

    for op in ops_of(program.body):
        last = [result for result in op.results if is_whole(result)]
        for result in last if len(last) == 1 else ():
            said, source = notes[result], notes[result].said.source
            if not said.backward and source and (not source.depth or result in outer):
                line = user_line(source.file, source.number)
                yield result, Written(source.text, line, source.function)


def _notes(program: Program, noted: Mapping[str, Noted]) -> list[Noted]:
    return [noted[value.name.partition(".")[0]] for value in program.values]


def _uses(
    program: Program, notes: Sequence[Noted]
) -> tuple[Mapping[int, list[Noted]], frozenset[int]]:
    """Return the notes of the ops that use each value, and the results of all bodies."""
    users: defaultdict[int, list[Noted]] = defaultdict(list)
    bodies = [program.body]
    for op in ops_of(program.body):
        bodies += op.bodies
        for operand in op.operands if op.results else ():
            users[operand].append(notes[op.results[0]])
    return users, frozenset(result for body in bodies for result in body.results)


def _wanted(program: Program, noted: Mapping[str, Noted]) -> tuple[list[str], set[int]]:
    """Return a name for each value, though several values may get the same name, and the values
    whose names are the user's."""
    notes = _notes(program, noted)
    users, ends = _uses(program, notes)
    found = [note.name if note.given else _by_kind(note) for note in notes]
    chosen = {number for number, note in enumerate(notes) if note.given}
    for op in ops_of(program.body):
        for place, result in enumerate(op.results):
            note = notes[result]
            if not note.backward:
                after = [user for user in users[result] if not user.backward]
                names = _by_code(note, op, after, result in ends) or _by_scope(note, after)
                if len(names) in (1, len(op.results)):
                    found[result] = names[place if len(names) > 1 else 0]
                    chosen.add(result)
    return found, chosen


def _by_code(note: Noted, op: Op, after: Sequence[Noted], is_end: bool) -> tuple[str, ...]:
    """Return the user's names for a value if it is the value of a whole expression, otherwise ().
    It is one if an op of a different expression uses it (`after`: its users), if it is the result
    of a body (`is_end`), or if its op is the expression's operator."""
    is_whole = is_end or any(user.said.place != note.said.place for user in after)
    return note.said.names if is_whole or op.kind == note.said.operator else ()


def _by_scope(note: Noted, after: Sequence[Noted]) -> tuple[str, ...]:
    """Return, as a tuple of one, the outermost of a value's named scopes that does not contain all
    later uses, or ()."""
    for depth in range(1, len(note.scope) + 1):
        if any(user.scope[:depth] != note.scope[:depth] for user in after):
            return note.scope[depth - 1 : depth]
    return ()


def _by_kind(note: Noted) -> str:
    """Return the name of a value that is only part of an expression: its scope or the word of its
    line, with its kind."""
    word = next(reversed(note.scope), note.said.word)
    word = "" if word in ("d", "bwd") else word  # the prefixes of gradients
    kind = word_of(note.name) if word else note.name.replace("-", "_")
    name = "_".join(filter(None, (word, kind)))
    return f"bwd_{name}" if note.backward else name
