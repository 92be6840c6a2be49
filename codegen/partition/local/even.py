"""A check that the given shardings of arguments and results make equal shards, as JAX requires."""

from __future__ import annotations

import math
from itertools import chain

from shardwright.ir.errors import InputError
from shardwright.ir.program import Program, Value
from shardwright.ir.sharding import Sharding


def check_even(given: Program, program: Program) -> None:
    """Raise InputError if the given sharding of an argument or result makes unequal shards or
    partial sums. `program`: the propagated program."""
    arguments = ((given.values[v].sharding, given.values[v]) for v in given.body.arguments)
    results = zip(given.results, (program.values[v] for v in program.body.results), strict=True)
    for number, (sharding, value) in enumerate(chain(arguments, results)):
        place = number - len(given.body.arguments)
        name = value.name if place < 0 else program.result_names[place]
        if sharding is not None:
            _check(sharding, value, name)


def _check(sharding: Sharding, value: Value, name: str) -> None:
    if sharding.unreduced:
        raise InputError(
            "arguments and results of an emitted program must not be partial sums",
            argument=name,
            got=str(sharding),
            expected="a sharding without unreduced axes",
        )
    for dim, extent in enumerate(value.shape):
        parts = sharding.parts(dim)
        if extent % parts:
            padded = math.ceil(extent / parts) * parts
            raise InputError(
                "JAX needs equal shards of arguments and results",
                argument=name,
                got=f"dimension {dim} of {extent} elements in {parts} parts",
                expected=f"an extent that {parts} divides: pad it to {padded}",
            )
