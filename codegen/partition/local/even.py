"""Equal shards of arguments and results, which JAX requires: the pass that pads arguments and
results whose stated sharding does not divide their extents.

The emitted program takes and returns padded arrays: the last shards end with padding, so that all
shards have one shape. A slice takes an argument's rows without the padding, and a pad adds zeros
after the rows of a result. Both are ops like the user's own: with padded ends (see `ends`) they
move no rows, and ops run on the padded shards.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shardwright.codegen.ops.fills import FLOATS
from shardwright.ir.errors import InputError
from shardwright.ir.program import Op, Program, Value
from shardwright.ir.sharding import Sharding


def with_even_shards(given: Program, program: Program) -> Program:
    """Return a program in which every stated sharding of an argument or result makes equal shards.
    `program`: the propagated program of `given`.

    Raises InputError for a stated sharding with partial sums, and for random keys that the sharding
    does not divide.
    """
    even = _Even(program)
    for value in program.body.arguments:
        asked = given.values[value].sharding
        own = program.values[value]
        even.argument(value, _even_shape(asked, own.sharding, own, own.name))
    rows = zip(given.results, program.results, program.body.results, strict=True)
    for place, (asked, sharding, value) in enumerate(rows):
        own, name = program.values[value], program.result_names[place]
        even.result(place, _even_shape(asked, sharding, own, name), sharding)
    return even.program()


def _even_shape(
    asked: Sharding | None, sharding: Sharding | None, value: Value, name: str
) -> tuple[int, ...]:
    """Return a value's shape. Dimensions that the stated sharding `asked` does not divide are
    padded until the axes of `sharding` divide them. A value without elements has no padding."""
    if asked is None or sharding is None:
        return value.shape
    if asked.unreduced:
        raise InputError(
            "arguments and results of an emitted program must not be partial sums",
            argument=name,
            got=str(asked),
            expected="a sharding without unreduced axes",
        )
    shape = list(value.shape)
    for dim, extent in enumerate(value.shape):
        if extent % asked.parts(dim) and value.size:
            parts = sharding.parts(dim)
            shape[dim] = math.ceil(extent / parts) * parts
            if value.dtype.startswith("key<"):
                raise InputError(
                    "random keys cannot be padded to equal shards",
                    argument=name,
                    got=f"dimension {dim} of {extent} keys in {parts} parts",
                    expected=f"{shape[dim]} keys, or the keys' data (jax.random.key_data)",
                )
    return tuple(shape)


class _Even:
    """A program under construction whose arguments and results get padded shapes."""

    def __init__(self, program: Program) -> None:
        self.given = program
        self.values = list(program.values)
        self.names = {value.name for value in self.values}
        self.slices: list[Op] = []
        self.pads: list[Op] = []
        self.unpadded: dict[int, int] = {}  # the rows of each padded argument
        self.results = list(program.body.results)

    def argument(self, value: int, shape: tuple[int, ...]) -> None:
        """Give an argument a shape. Ops take its rows without the padding."""
        own = self.values[value]
        if shape == own.shape:
            return
        self.unpadded[value] = rows = self._new(own, "rows")
        self.values[value] = replace(own, shape=shape)
        params = (
            *(("limit_indices", own.shape), ("start_indices", (0,) * len(shape))),
            ("strides", None),
        )
        self.slices.append(Op("slice", (value,), (rows,), params, line=own.line))

    def result(self, place: int, shape: tuple[int, ...], sharding: Sharding | None) -> None:
        value = self.results[place]
        own = self.given.values[value]
        if shape == own.shape:
            return
        zero = self._new(replace(own, shape=(), sharding=None), "zero")
        number = False if own.dtype == "bool" else 0.0 if own.dtype in FLOATS else 0
        self.pads.append(Op("constant", (), (zero,), (("value", number),)))
        padded = self._new(replace(own, shape=shape, sharding=sharding), "padded")
        pairs = zip(own.shape, shape, strict=True)
        config = tuple((0, after - before, 0) for before, after in pairs)
        row = self.unpadded.get(value, value)
        params = (("padding_config", config),)
        self.pads.append(Op("pad", (row, zero), (padded,), params, line=own.line))
        self.results[place] = padded

    def _new(self, like: Value, role: str) -> int:
        name = f"{like.name}_{role}"
        while name in self.names:
            name += "_"
        self.names.add(name)
        self.values.append(replace(like, name=name, version_of=like.name))
        return len(self.values) - 1

    def program(self) -> Program:
        body = self.given.body
        ops = (
            replace(op, operands=tuple(self.unpadded.get(v, v) for v in op.operands))
            for op in body.ops
        )
        results = tuple(self.unpadded.get(value, value) for value in self.results)
        made = replace(body, ops=(*self.slices, *ops, *self.pads), results=results)
        return replace(self.given, values=tuple(self.values), body=made)
