"""Find the user's names for the values of expressions. In `h = x @ w`, the value of `x @ w` is
named `h`."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from shardwright.codegen.ops.table import by_symbol
from shardwright.codegen.trace.written import Source, source_of, statement_of

Frames = tuple[tuple[CodeType, int], ...]  # functions, each with the index of an instruction
Range = tuple[int | None, int | None, int | None, int | None]  # first and last line, then column
PASSING = (ast.ListComp, ast.GeneratorExp, ast.IfExp)
"""Expressions whose value, or whose items, are values of their parts."""
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
SYMBOLS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.MatMult: "@",
    ast.USub: "-x",
}
OPERATORS = {node: by_symbol(symbol) for node, symbol in SYMBOLS.items()}
"""The kind of op for each of Python's operators."""


@dataclass(frozen=True)
class Phrase:
    """The user's names for the ops of one expression.

    `names`: the name of the expression's value, or of each variable into which it is unpacked;
    `word`: the name that its statement assigns, or the name of the function that returns it;
    `operator`: the kind of the op that produces its whole value; `functions`: the names of the
    functions around it, outermost first; `source`: where the source has the expression's value.
    """

    place: Hashable = None  # equal for the ops of one expression
    names: tuple[str, ...] = ()
    word: str = ""
    operator: str = ""
    functions: tuple[str, ...] = ()
    source: Source | None = None


class UserWords:
    """Read names from the user's files, which are cached."""

    def __init__(self) -> None:
        self.files: dict[str, dict[Range, ast.AST]] = {}
        self.ranges: dict[CodeType, list[Range]] = {}
        self.known: dict[Frames, Phrase] = {}

    def of(self, frames: Frames) -> Phrase:
        """Return the user's names for an equation. `frames`: its frames, innermost first."""
        if frames not in self.known:
            self.known[frames] = self._of(frames)
        return self.known[frames]

    def _of(self, frames: Frames) -> Phrase:
        nodes = [self._node(*frame) for frame in frames]
        functions = [name for code, _ in reversed(frames) if (name := function_of(code))]
        pairs = list(zip(nodes, frames, strict=True))
        own = frames[-1][0].co_name if frames else ""  # the traced function's name
        words = (_word(node, code) for node, (code, _) in pairs)
        word = next((word for word in words if word not in ("", own)), "")
        operator = getattr(nodes[0], "op", ast.Pass()) if nodes else ast.Pass()
        return Phrase(
            frames,
            _names(pairs),
            word,
            OPERATORS.get(type(operator), ""),
            tuple(functions),
            source_of([(node, code) for node, (code, _) in pairs]),
        )

    def operands(self, code: CodeType, instruction: int) -> tuple[tuple[str, ...], bool]:
        """Return the function's own names for the operands of an expression, "" for an operand
        without one, and whether the expression is in a loop of the function."""
        node: Any = self._node(code, instruction)
        parts: list[Any]
        match node:
            case ast.BinOp():
                parts = [node.left, node.right]
            case ast.Compare():
                parts = [node.left, *node.comparators]
            case ast.UnaryOp():
                parts = [node.operand]
            case ast.Subscript():
                parts = [node.value]
            case ast.Call():
                parts = [*node.args, *(each.value for each in node.keywords)]
                owner = getattr(node.func, "value", None)
                parts[:0] = [owner] if getattr(owner, "id", "") in code.co_varnames else []
            case _:
                parts = []
        names = (getattr(part, "id", "") for part in parts)
        own = tuple(name if name in code.co_varnames else "" for name in names)
        return own, _is_looped(node)

    def _node(self, code: CodeType, instruction: int) -> ast.AST | None:
        if code not in self.ranges:
            self.ranges[code] = list(code.co_positions())
        found = self.ranges[code][instruction // 2]
        file = code.co_filename
        if file not in self.files:
            self.files[file] = dict(_nodes("".join(linecache.getlines(file))))
        nodes = self.files[file]
        return nodes.get(found) or nodes.get((None, None, found[1], found[3]))


def _is_looped(node: Any) -> bool:
    while node is not None and not isinstance(node, ast.FunctionDef | ast.Lambda):
        if isinstance(node, LOOPS):
            return True
        node = getattr(node, "parent", None)
    return False


def _nodes(text: str) -> Iterator[tuple[Range, ast.AST]]:
    """Yield the expressions of a file with their ranges, or nothing if the file is not Python.
    Yield calls at their end too, because the instruction of a call may start at the name of a
    method. Set the parent of each expression."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            node.parent = parent  # type: ignore[attr-defined]
            if isinstance(node, ast.expr | ast.AugAssign):
                yield (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset), node
            if isinstance(node, ast.Call):
                yield (None, None, node.end_lineno, node.end_col_offset), node


def _names(pairs: Sequence[tuple[ast.AST | None, tuple[CodeType, int]]]) -> tuple[str, ...]:
    """Return the names of the value of the innermost expression.

    The names come from the statement whose whole value it is, in its function or in a function to
    which it is returned. Without such a statement, return the name of the outermost function that
    returns the value, or "out" for the traced function.
    """
    found: tuple[str, ...] = ()
    item: int | None = None
    for node, (code, _) in pairs:
        statement, item = statement_of(node, item, PASSING)
        if isinstance(statement, ast.Return | ast.Lambda):
            name = function_of(code) if code is not pairs[-1][1][0] else "out"
            found = (name,) if name else found
            continue
        targets = _targets(statement)
        if len(targets) > 1 and item is not None:
            targets = targets[item : item + 1]
        if len(targets) > 1 and sum(map(bool, targets)) == 1:  # as in `x, _ = ...`
            targets = tuple(filter(None, targets))
        return targets if all(targets) and targets and not (found and targets[1:]) else found
    return found


def _targets(statement: ast.AST | None) -> tuple[str, ...]:
    """Return the names that a statement assigns, with "" for parts of an unpacked target that have
    no name."""
    target: Any = getattr(statement, "target", None) or next(
        iter(getattr(statement, "targets", ())), None
    )
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(map(_target, target.elts))
    return tuple(filter(None, [_target(target)]))


def _target(target: Any) -> str:
    """Return the name of an assignment's target: a variable, an attribute, or the string that
    indexes an item."""
    if isinstance(target, ast.Subscript):
        target = target.slice
    known = (getattr(target, attribute, None) for attribute in ("id", "attr", "value"))
    name = next((name for name in known if isinstance(name, str)), "")
    return name.lstrip("_") if name.isidentifier() and name.isascii() else ""


def _word(node: ast.AST | None, code: CodeType) -> str:
    """Return the name that an expression's statement assigns, or the name of the function if the
    statement is a return. If the statement assigns several names, return the name of the function
    that it calls, or ""."""
    while node is not None and not isinstance(node, ast.stmt | ast.Lambda):
        if isinstance(node, ast.NamedExpr):
            break
        node = getattr(node, "parent", None)
    if isinstance(node, ast.Return):
        return function_of(code)
    targets = _targets(node)
    called: Any = getattr(getattr(node, "value", None), "func", None)
    several = _target(called) if len(targets) > 1 else ""
    return targets[0] if len(targets) == 1 else several


def function_of(code: CodeType) -> str:
    """Return the name of a function, or "" for a lambda, a module, or a special method such as
    `__call__`."""
    name = code.co_name
    return "" if name.startswith(("<", "__")) or not name.isascii() else name.lstrip("_")
