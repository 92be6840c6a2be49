"""The text form of a program: `parse_program(format_program(p)) == p`.

    @mesh = <["d"=4, "t"=2]>
    program mlp(%x: f32[8,4] [{"d"}, {}], %w: f32[4,4]) -> ([{"d"}, {}]) {
      %y: f32[8,4] = dot_general(%x, %w) {contract_lhs=(1), contract_rhs=(0), …}  // mlp.py:12
      return %y
    }

Sizes of a rule's factors stand in it, as in Shardy's text: `rule=([ij])->([i, j]) {i=2, j=4}`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Body, Line, Op, Param, Program, Rule, Value
from shardwright.ir.sharding import Sharding
from shardwright.ir.text.parse import parse_meshes, parse_sharding

KINDS = ("reduction", "need_replication", "permutation", "blocked")
LETTERS = "ijklmnopqrstuvwxyz"
Node = Tree[Token]


def format_program(program: Program) -> str:
    """Return the text of a program."""
    return "\n".join(_Format(program).lines()) + "\n"


class _Format:
    """Prints one program; shardings on the first mesh go without its name."""

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
    """Return the names that meshes have in the text: their own, or `mesh`, `mesh_1`, …"""
    names: list[str] = []
    for number, mesh in enumerate(meshes):
        own = mesh.name or ("mesh" if number == 0 else f"mesh_{number}")
        names.append(own if own not in names else f"{own}_{number}")
    return names


def format_rule(rule: Rule) -> str:
    """Return a rule as Shardy prints it: `([i, k], [k, j])->([i, j]) {i=8, j=8, k=4}
    reduction={k}`."""
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
    """Return the name of a factor by its number: i, j, … z, then z_1, z_2, …"""
    last = len(LETTERS) - 1
    return LETTERS[factor] if factor <= last else f"z_{factor - last}"


def parse_rule(text: str) -> Rule:
    """Return a rule from its text; Shardy's `blocked_propagation` and `custom` are read too."""
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


@functools.cache
def _parser() -> Lark:
    return Lark.open(
        "program.lark", rel_to=__file__, start="program", parser="lalr", propagate_positions=True
    )


def parse_program(text: str) -> Program:
    """Return a program from its text; an InputError with a caret where it does not follow the
    grammar."""
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
        raise InputError(
            "the text is not a program",
            got=text[at : at + 20] or "the end",
            text=text,
            span=(at, at + 1),
        ) from None
    return _Read(text).program(tree)


class _Read:
    """Reads one parse tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.meshes: tuple[Mesh, ...] = ()
        self.values: list[Value] = []
        self.number: dict[str, int] = {}

    def program(self, tree: Node) -> Program:
        self.meshes = self.read_meshes([n.children[0] for n in tree.find_data("mesh")])
        arguments, results, block = tree.children[-3:]
        body, groups = self.body(arguments, block)
        slots = tuple(self.slot(node) for node in results.children)  # type: ignore[union-attr]
        name = next(str(c) for c in tree.children if isinstance(c, Token))
        return Program(name, self.meshes, tuple(self.values), body, slots, groups)

    def read_meshes(self, tokens: list[Any]) -> tuple[Mesh, ...]:
        meshes = parse_meshes("\n".join(map(str, tokens)))
        for token, mesh in zip(tokens, meshes, strict=True):
            if set(mesh.device_ids) != set(meshes[0].device_ids):
                raise self.error("all meshes of a program must be of the same devices", token)
        return meshes

    def slot(self, node: Any) -> Sharding | None:
        token = node.children[0]
        return None if token.type == "FREE" else self.sharding(token)

    def body(self, arguments: Any, block: Any) -> tuple[Body, tuple[tuple[int, ...], ...]]:
        numbers = tuple(self.value(node) for node in arguments.children)
        ops = tuple(self.op(node) for node in block.children if node.data == "op")
        (last,) = (node for node in block.children if node.data == "return")
        groups = (self.refs(node) for node in block.children if node.data == "alike")
        return Body(numbers, ops, self.refs(last)), tuple(groups)

    def refs(self, node: Any) -> tuple[int, ...]:
        return tuple(self.ref(token) for token in node.children if _is(token, "VALUE"))

    def ref(self, token: Token) -> int:
        if token not in self.number:
            raise self.error("a value must be defined before it is used", token)
        return self.number[str(token)]

    def value(self, node: Any) -> int:
        name, kind, *rest = node.children
        if name in self.number:
            raise self.error("a value must be defined once", name)
        dtype, _, shape = str(kind)[:-1].partition("[")
        extents = tuple(int(extent) for extent in shape.split(",") if extent.strip())
        sharding = self.sharding(rest[0]) if rest else None
        if sharding is not None and sharding.rank != len(extents):
            raise self.error("a sharding must have the rank of its value", rest[0])
        self.number[str(name)] = len(self.values)
        self.values.append(Value(str(name)[1:], extents, dtype, sharding))
        return len(self.values) - 1

    def op(self, node: Any) -> Op:
        kind = next(str(c) for c in node.children if _is(c, "NAME"))
        operands = self.refs(node)
        parts = {c.data: c for c in node.children if isinstance(c, Tree)}
        bodies = tuple(self.body(*c.children)[0] for c in node.children if _data(c) == "body")
        results = tuple(self.value(c) for c in node.children if _data(c) == "value")
        params: tuple[tuple[str, Param], ...] = ()
        if "params" in parts:
            params = tuple(self.param(param) for param in parts["params"].children)
        rule = parse_rule(str(parts["rule"].children[0])[5:]) if "rule" in parts else None
        line = _line(str(parts["line"].children[0])[2:].strip()) if "line" in parts else None
        for result in results:
            old = self.values[result]
            self.values[result] = Value(old.name, old.shape, old.dtype, old.sharding, line)
        return Op(kind, operands, results, params, bodies, rule, line)

    def param(self, node: Any) -> tuple[str, Param]:
        name, literal = node.children
        return str(name), self.literal(literal)

    def literal(self, node: Any) -> Param:
        if node.data == "tuple":
            return tuple(self.literal(child) for child in node.children)
        token = str(node.children[0])
        match node.data:
            case "string":
                return token[1:-1]
            case "sharding":
                return self.sharding(node.children[0])
            case "constant":
                return {"true": True, "false": False, "none": None}[token]
        return int(token) if re.fullmatch("-?[0-9]+", token) else float(token)

    def sharding(self, token: Token) -> Sharding:
        try:
            named = str(token).startswith("<")
            return parse_sharding(str(token), self.meshes if named else self.meshes[0])
        except InputError as error:
            start = token.start_pos or 0
            low, high = error.span or (0, len(token))
            raise error.within(self.text, (start + low, start + high)) from None

    def error(self, rule: str, token: Token) -> InputError:
        start = token.start_pos or 0
        return InputError(rule, got=str(token), text=self.text, span=(start, start + len(token)))


def _is(child: Any, kind: str) -> bool:
    return isinstance(child, Token) and child.type == kind


def _data(child: Any) -> str:
    return str(child.data) if isinstance(child, Tree) else ""


def _line(text: str) -> Line | None:
    file, _, number = text.rpartition(":")
    return Line(file, int(number)) if number.isdigit() else None
