"""Print programs. The text parses back: `format_program(parse_program(text)) == text`.

    @mesh = <["d"=4, "t"=2]>
    program mlp(%x: f32[8,4] [{"d"}, {}], %w: f32[4,4]) -> ([{"d"}, {}]) {
      %y: f32[8,4] = dot_general(%x, %w) {contract_lhs=(1), contract_rhs=(0), …}  // mlp.py:12
      return %y
    }

A rule states the sizes of its factors, as in Shardy's text: `rule=([ij])->([i, j]) {i=2, j=4}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Body, Op, Param, Program, Rule
from shardwright.ir.sharding import Sharding

KINDS = ("reduction", "need_replication", "permutation", "blocked")
LETTERS = "ijklmnopqrstuvwxyz"


def format_program(program: Program) -> str:
    """Return the text of a program."""
    return "\n".join(_Format(program).lines()) + "\n"


class _Format:
    """Prints one program. Shardings on the first mesh omit the name of the mesh."""

    def __init__(self, program: Program) -> None:
        self.program, self.values = program, program.values
        self.names = mesh_names(program.meshes)

    def lines(self) -> Iterator[str]:
        program = self.program
        for name, mesh in zip(self.names, program.meshes, strict=True):
            yield f"@{name} = {mesh}"
        slots = ", ".join("_" if s is None else self.sharding(s) for s in program.results)
        yield f"program {program.name}({self.arguments(program.body)}) -> ({slots}) {{"
        yield from self.block(program.body, "  ")
        for group in program.groups:
            yield f"  alike {self.refs(group)}"
        yield "}"

    def block(self, body: Body, indent: str) -> Iterator[str]:
        for op in body.ops:
            yield from self.op(op, indent)
        yield f"{indent}return {self.refs(body.results)}".rstrip()

    def op(self, op: Op, indent: str) -> Iterator[str]:
        results = ", ".join(map(self.value, op.results))
        text = f"{indent}{results} = " if results else indent
        text += f"{op.kind}({self.refs(op.operands)})"
        if op.params:
            params = (f"{name}={self.literal(value)}" for name, value in op.params)
            text += f" {{{', '.join(params)}}}"
        if op.rule is not None:
            text += f" rule={format_rule(op.rule)}"
        line = f"  // {op.line}" if op.line else ""
        if not op.bodies:
            yield text + line
            return
        for body in op.bodies:
            yield f"{text} ({self.arguments(body)}) {{"
            yield from self.block(body, indent + "  ")
            text = f"{indent}}}"
        yield text + line

    def arguments(self, body: Body) -> str:
        return ", ".join(map(self.value, body.arguments))

    def refs(self, values: Iterable[int]) -> str:
        return ", ".join(f"%{self.values[value].name}" for value in values)

    def value(self, number: int) -> str:
        value = self.values[number]
        shape = ",".join(map(str, value.shape))
        sharding = "" if value.sharding is None else f" {self.sharding(value.sharding)}"
        return f"%{value.name}: {value.dtype}[{shape}]{sharding}"

    def sharding(self, sharding: Sharding) -> str:
        number = self.program.meshes.index(sharding.mesh)
        return str(sharding) if number == 0 else f"<@{self.names[number]}, {sharding}>"

    def literal(self, value: Param) -> str:
        match value:
            case None | True | False:
                return str(value).lower()
            case tuple():
                return f"({', '.join(map(self.literal, value))})"
            case str():
                return f'"{value}"'
            case Sharding():
                return self.sharding(value)
        return repr(value)


def mesh_names(meshes: Iterable[Mesh]) -> list[str]:
    """Return a distinct name for each mesh: the mesh's own name, or `mesh`, `mesh_1`, … if it has
    none."""
    names: list[str] = []
    for number, mesh in enumerate(meshes):
        own = mesh.name or ("mesh" if number == 0 else f"mesh_{number}")
        names.append(own if own not in names else f"{own}_{number}")
    return names


def format_rule(rule: Rule) -> str:
    """Return the text of a rule in Shardy's notation:
    `([i, k], [k, j])->([i, j]) {i=8, j=8, k=4} reduction={k}`."""
    names = [factor_name(factor) for factor in range(len(rule.sizes))]
    sides = (
        ", ".join(
            f"[{', '.join(''.join(names[f] for f in dim) for dim in dims)}]" for dims in tensors
        )
        for tensors in (rule.operands, rule.results)
    )
    text = "->".join(f"({side})" for side in sides)
    if rule.sizes:
        sizes = zip(names, rule.sizes, strict=True)
        text += f" {{{', '.join(f'{name}={size}' for name, size in sizes)}}}"
    for kind in KINDS:
        factors = getattr(rule, kind)
        if factors:
            text += f" {kind}={{{', '.join(names[factor] for factor in factors)}}}"
    return text


def factor_name(factor: int) -> str:
    """Return the name of the factor with this number: i, j, … z, then z_1, z_2, …"""
    last = len(LETTERS) - 1
    return LETTERS[factor] if factor <= last else f"z_{factor - last}"


def parse_rule(text: str) -> Rule:
    """Parse a rule in Shardy's notation. `blocked_propagation` means `blocked`, and
    `custom` is ignored. Raise KeyError or ValueError for a malformed text."""
    operands, results = text.split("->")
    head, _, tail = results.partition(")")
    sizes = dict(re.findall(r"(z_\d+|[i-z])=(\d+)", tail))
    number = {name: i for i, name in enumerate(sizes)}
    sets = {
        kind: tuple(number[name] for name in re.findall(r"z_\d+|[i-z]", inside))
        for kind, inside in re.findall(r"(\w+)=\{([^}]*)\}", tail)
    }
    return Rule(
        tuple(map(int, sizes.values())),
        _tensors(operands, number),
        _tensors(head, number),
        sets.get("reduction", ()),
        sets.get("need_replication", ()),
        sets.get("permutation", ()),
        sets.get("blocked", sets.get("blocked_propagation", ())),
    )


def _tensors(text: str, number: dict[str, int]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(
        tuple(
            tuple(number[name] for name in re.findall(r"z_\d+|[i-z]", dim))
            for dim in inside.split(",")
            if dim.strip()
        )
        for inside in re.findall(r"\[([^\]]*)\]", text)
    )
