"""The twins of an argument: what has its keys, its shape and its sharding, such as the state of an
optimizer and the results that are the next call's arguments. They are resharded together, since
JAX moves a result whose sharding is not that of the argument that it becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.ir.program import Value


@dataclass(frozen=True)
class Twins:
    """The twins of an argument. `arguments`: numbers of values; `results`: indices of results;
    `said`: the clause about them, "" if there are none."""

    arguments: tuple[int, ...]
    results: tuple[int, ...]
    said: str


def twins_of(local: LocalProgram, argument: int) -> Twins:
    """Return the twins of an argument. One that is no part of a tree has none."""
    program, own = local.program, local.program.values[argument]
    tail = words_of(program.argument_name(argument))[1:]

    def is_twin(path: str, value: Value) -> bool:
        is_like = (own.shape, own.sharding) == (value.shape, value.sharding)
        return is_like and bool(tail) and words_of(path)[-len(tail) :] == tail

    arguments = tuple(
        each
        for each in program.body.arguments
        if each != argument and is_twin(program.argument_name(each), program.values[each])
    )
    results = tuple(
        place
        for place, (value, path) in enumerate(
            zip(program.body.results, program.result_names, strict=True)
        )
        if is_twin(path, replace(program.values[value], sharding=program.results[place]))
    )
    roots = [words_of(program.argument_name(each))[0] for each in arguments]
    found = dict.fromkeys([*roots, *(["the results"] if results else [])])
    said = f" (and the same in {' and '.join(found)})" if found else ""
    return Twins(arguments, results, said)


def words_of(path: str) -> list[str]:
    """Return the words of a path: params, w for `params['w']`."""
    return re.findall(r"\w+", path)
