"""Parse the text of programs, which `program_text` prints. Errors underline the mistake."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Body, Line, Op, Param, Program, Rule, Value
from shardwright.ir.program_check import check_op
from shardwright.ir.program_text import parse_rule
from shardwright.ir.sharding import Sharding
from shardwright.ir.text.parse import parse_meshes, parse_sharding

Node = Tree[Token]
Check = Callable[[Op, Sequence[Value]], None]


@functools.cache
def _parser() -> Lark:
    return Lark.open(
        "program.lark", rel_to=__file__, start="program", parser="lalr", propagate_positions=True
    )


def parse_program(text: str, check: Check | None = None) -> Program:
    """Parse a program. Raise InputError, with a caret, if the text is malformed.

    `check`: an additional check, called with each op and the values defined so far. Its
    InternalError is raised as an InputError that underlines the op.
    """
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
        raise InputError(
            "the text is not a valid program",
            got=text[at : at + 20] or "the end",
            text=text,
            span=(at, at + 1),
        ) from None
    return _Read(text, (check_op,) if check is None else (check_op, check)).program(tree)


class _Read:
    def __init__(self, text: str, checks: tuple[Check, ...]) -> None:
        self.text, self.checks = text, checks
        self.hidden: set[str] = set()  # the names of values in bodies that have ended
        self.meshes: tuple[Mesh, ...] = ()
        self.values: list[Value] = []
        self.number: dict[str, int] = {}

    def program(self, tree: Node) -> Program:
        self.meshes = self.read_meshes([n.children[0] for n in tree.find_data("mesh")])
        arguments, results, block = tree.children[-3:]
        body, groups = self.body(arguments, block)
        slots = tuple(map(self.slot, results.children, body.results))  # type: ignore[union-attr]
        if len(results.children) != len(body.results):  # type: ignore[union-attr]
            raise self.at("each result must have a sharding, or _", results)
        name = next(str(c) for c in tree.children if isinstance(c, Token))
        return Program(name, self.meshes, tuple(self.values), body, slots, groups)

    def read_meshes(self, tokens: list[Any]) -> tuple[Mesh, ...]:
        meshes = parse_meshes("\n".join(map(str, tokens)))
        for token, mesh in zip(tokens, meshes, strict=True):
            if set(mesh.device_ids) != set(meshes[0].device_ids):
                raise self.error("all meshes of a program must have the same devices", token)
        return meshes

    def slot(self, node: Any, value: int) -> Sharding | None:
        token = node.children[0]
        return None if token.type == "FREE" else self.ranked(token, self.values[value].shape)

    def body(self, arguments: Any, block: Any) -> tuple[Body, tuple[tuple[int, ...], ...]]:
        numbers = tuple(self.value(node) for node in arguments.children)
        ops = tuple(self.op(node) for node in block.children if node.data == "op")
        (last,) = (node for node in block.children if node.data == "return")
        groups = tuple(self.group(node) for node in block.children if node.data == "alike")
        return Body(numbers, ops, self.refs(last)), groups

    def inner(self, node: Any) -> Body:
        """Return the body of an op. Ops outside it may not use its values."""
        before = set(self.number)
        body, groups = self.body(*node.children)
        if groups:
            raise self.at("groups must come at the end of the program", node)
        self.hidden.update(self.number.keys() - before)
        return body

    def group(self, node: Any) -> tuple[int, ...]:
        members = self.refs(node)
        if len({self.values[member].shape for member in members}) > 1:
            raise self.at("values of a group must have the same shape", node)
        return members

    def refs(self, node: Any) -> tuple[int, ...]:
        return tuple(self.ref(token) for token in node.children if _is(token, "VALUE"))

    def ref(self, token: Token) -> int:
        if token not in self.number or token in self.hidden:
            raise self.error("a value must be defined before it is used", token)
        return self.number[str(token)]

    def value(self, node: Any) -> int:
        name, kind, *rest = node.children
        if name in self.number:
            raise self.error("a value must be defined once", name)
        dtype, _, shape = str(kind)[:-1].partition("[")
        extents = tuple(int(extent) for extent in shape.split(",") if extent.strip())
        sharding = self.ranked(rest[0], extents) if rest else None
        self.number[str(name)] = len(self.values)
        self.values.append(Value(str(name)[1:], extents, dtype, sharding))
        return len(self.values) - 1

    def op(self, node: Any) -> Op:
        kind = next(str(c) for c in node.children if _is(c, "NAME"))
        operands = self.refs(node)
        parts = {c.data: c for c in node.children if isinstance(c, Tree)}
        bodies = tuple(self.inner(c) for c in node.children if _data(c) == "body")
        results = tuple(self.value(c) for c in node.children if _data(c) == "value")
        params: tuple[tuple[str, Param], ...] = ()
        if "params" in parts:
            params = tuple(sorted(map(self.param, parts["params"].children), key=_first))
        rule = self.rule(parts["rule"].children[0]) if "rule" in parts else None
        line = _line(str(parts["line"].children[0])[2:].strip()) if "line" in parts else None
        for result in results:
            old = self.values[result]
            self.values[result] = Value(old.name, old.shape, old.dtype, old.sharding, line)
        return self.checked(Op(kind, operands, results, params, bodies, rule, line), node)

    def checked(self, op: Op, node: Any) -> Op:
        """Return the op if it passes all checks; otherwise raise an InputError that underlines the
        op."""
        for check in self.checks:
            try:
                check(op, self.values)
            except InternalError as error:
                rule = str(error).removeprefix("the program is not well formed: ")
                raise self.at(rule, node) from None
        return op

    def rule(self, token: Any) -> Rule:
        try:
            return parse_rule(str(token)[5:])
        except (LookupError, ValueError):
            raise self.error("a rule must give the size of every factor", token) from None

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

    def ranked(self, token: Token, shape: tuple[int, ...]) -> Sharding:
        sharding = self.sharding(token)
        if sharding.rank != len(shape):
            raise self.error("a sharding must have the rank of its value", token)
        return sharding

    def sharding(self, token: Token) -> Sharding:
        if not self.meshes:
            raise self.error("a program with shardings must have a mesh", token)
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

    def at(self, rule: str, node: Any) -> InputError:
        """Return an error that underlines the first line of a node's text."""
        start = 0 if node.meta.empty else node.meta.start_pos
        end = len(self.text) if node.meta.empty else node.meta.end_pos
        got = self.text[start:end].splitlines()[0].rstrip()
        return InputError(rule, got=got, text=self.text, span=(start, start + len(got)))


def _is(child: Any, kind: str) -> bool:
    return isinstance(child, Token) and child.type == kind


def _first(param: tuple[str, Param]) -> str:
    return param[0]


def _data(child: Any) -> str:
    return str(child.data) if isinstance(child, Tree) else ""


def _line(text: str) -> Line | None:
    file, _, number = text.rpartition(":")
    return Line(file, int(number)) if number.isdigit() else None
