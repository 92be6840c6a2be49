"""A program in the notation `f32[16@d,32@t]`, next to the lines of the user's source.

If there are several meshes, each has a name. Values on the first mesh omit it.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from shardwright.ir.program import Body, Line, Op, Program, Value
from shardwright.ir.program_text import mesh_names
from shardwright.ir.sharding import Sharding

HIDDEN = frozenset({"constant"})


def notation(value: Value) -> str:
    """Return a type with its sharding: `f32[16@d,32@t]`. Several axes are joined as `16@(d,t)`."""
    return value.dtype + shape_text(value.shape, value.sharding)


def shape_text(shape: tuple[int, ...], sharding: Sharding | None) -> str:
    """Return the extents with the axes that split them, and the axes of a partial sum."""
    axes = [dim.axes for dim in sharding.dims] if sharding is not None else [()] * len(shape)
    extents = []
    for extent, refs in zip(shape, axes, strict=True):
        names = ",".join(str(ref).replace('"', "") for ref in refs)
        at = f"@({names})" if len(refs) > 1 else f"@{names}" if refs else ""
        extents.append(f"{extent}{at}")
    sums = "".join(f"+{ref}".replace('"', "") for ref in sharding.unreduced) if sharding else ""
    return f"[{','.join(extents)}]{sums}"


def show_program(program: Program) -> str:
    """Return a program's values below the source lines that compute them, omitting constants."""
    return "\n".join(_Shown(program).lines()) + "\n"


class _Shown:
    def __init__(self, program: Program) -> None:
        self.program, self.values = program, program.values
        self.names = mesh_names(program.meshes)
        self.last: Line | None = None

    def lines(self) -> Iterator[str]:
        for name, mesh in zip(self.names, self.program.meshes, strict=True):
            yield f"mesh {mesh}" if len(self.names) == 1 else f"mesh @{name} = {mesh}"
        yield f"{self.program.name}:"
        for argument in self.program.body.arguments:
            yield f"    {self.value(argument)}"
        yield from self.body(self.program.body, "    ")
        results = zip(self.program.body.results, self.program.results, strict=True)
        listed = (self.result(value, sharding) for value, sharding in results)
        yield f"    return {', '.join(listed)}"
        yield from (f"warning: {text}" for text in self.program.warnings)

    def body(self, body: Body, indent: str) -> Iterator[str]:
        for op in body.ops:
            if op.kind in HIDDEN:
                continue
            if op.line is not None and op.line != self.last:
                self.last = op.line
                source = linecache.getline(op.line.file, op.line.number).strip()
                yield f"  {op.line}  {source}".rstrip()
            yield from self.op(op, indent)

    def op(self, op: Op, indent: str) -> Iterator[str]:
        results = ", ".join(map(self.value, op.results))
        operands = ", ".join(self.values[v].name for v in op.operands)
        yield f"{indent}{results} = {op.kind}({operands})"
        for inner in op.bodies:
            for argument in inner.arguments:
                yield f"{indent}    {self.value(argument)}"
            yield from self.body(inner, indent + "    ")

    def value(self, number: int) -> str:
        value = self.values[number]
        return f"{value.name}: {notation(value)}{self.on(value.sharding)}"

    def result(self, number: int, sharding: Sharding | None) -> str:
        value = self.values[number]
        shape = shape_text(value.shape, sharding)
        return f"{value.name}: {value.dtype}{shape}{self.on(sharding)}"

    def on(self, sharding: Sharding | None) -> str:
        number = 0 if sharding is None else self.program.meshes.index(sharding.mesh)
        return f" on @{self.names[number]}" if number else ""
