"""Find where the user's source has the value of an expression, so that advice can name it: the
variable to which it is assigned, or else the expression itself."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

LONGEST = 60
"""The most characters of an expression that is quoted as a whole."""
RESULTS: dict[type[ast.operator], str] = {
    ast.Add: "sum",
    ast.Sub: "difference",
    ast.Mult: "product",
    ast.MatMult: "product",
    ast.Div: "quotient",
}
"""The result of each operator, in words."""


@dataclass(frozen=True)
class Source:
    """A place in the user's source. `text`: a variable, or an expression in backquotes; `function`:
    the function around it, "" for a lambda or a module; `depth`: the calls between this place and
    the expression, which return the expression's value to it."""

    text: str
    file: str
    number: int
    function: str
    depth: int


def source_of(pairs: Sequence[tuple[ast.AST | None, CodeType]]) -> Source | None:
    """Return the place that has the value of the innermost expression, or None if there is none.
    `pairs`: expressions with their functions, innermost first, each of which calls the one before.

    The variable is in the expression's function, or in a function to which its value is returned.
    Without a variable, it is the outermost expression with this value."""
    found: Source | None = None
    item: int | None = None
    for depth, (node, code) in enumerate(pairs):
        if depth and not _calls(node, pairs[depth - 1][1]):
            return found
        given, (statement, item) = item, statement_of(node, item)
        target = _variable(statement, item)
        if target is not None:
            return Source(target.id, code.co_filename, target.lineno, _function(code), depth)
        text = _quoted(node, code) if given is None else ""
        if text:
            line = getattr(node, "lineno", 0)
            found = Source(text, code.co_filename, line, _function(code), depth)
        if not isinstance(statement, ast.Return | ast.Lambda):
            return found
    return found


def _calls(node: Any, called: CodeType) -> bool:
    """Return whether an expression is a call that returns what a function returns, rather than a
    call of another function that calls it, such as a scan."""
    func = getattr(node, "func", None)
    if called.co_name == "__call__":
        made_by = func.func if isinstance(func, ast.Call) else func  # as in `Block()(x)`
        return isinstance(made_by, ast.Name | ast.Attribute)
    return called.co_name in (getattr(func, "id", ""), getattr(func, "attr", ""))


def statement_of(
    node: Any, item: int | None, passing: tuple[type[ast.expr], ...] = (ast.IfExp,)
) -> tuple[ast.AST | None, int | None]:
    """Return the statement or lambda whose whole value an expression is, or None. Also return the
    index of the expression in a tuple there, or None. `passing`: the expressions whose value, or
    whose items, are values of their parts."""
    while node is not None and not isinstance(node, ast.AugAssign):
        parent: Any = getattr(node, "parent", None)
        if isinstance(parent, ast.Tuple | ast.List) and item is None and node in parent.elts:
            item = parent.elts.index(node)
        elif isinstance(parent, ast.Lambda):
            return (parent if parent.body is node else None), item
        elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.Return):
            return (parent if parent.value is node else None), item
        elif not isinstance(parent, passing) or getattr(parent, "test", None) is node:
            return None, item
        node = parent
    return node, item


def _variable(statement: Any, item: int | None) -> ast.Name | None:
    """Return the variable to which a statement assigns its whole value, or the value's `item`."""
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    target = targets[0]
    if item is not None:
        every = getattr(target, "elts", [])
        is_plain = not any(isinstance(each, ast.Starred) for each in every)
        target = every[item] if is_plain and item < len(every) else None
    return target if isinstance(target, ast.Name) else None


def _quoted(node: Any, code: CodeType) -> str:
    """Return an expression in backquotes, or what it is in words if it is long. Return "" for an
    expression whose value is a tuple or list of which an item is taken, or unpacked."""
    parent = getattr(node, "parent", None)
    if isinstance(node, ast.Call):
        unpacked = getattr(parent, "targets", [None])[0]
        if isinstance(parent, ast.Subscript) or isinstance(unpacked, ast.Tuple | ast.List):
            return ""
    elif not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Subscript | ast.Compare):
        return ""
    text, func = _segment(node, code), _segment(getattr(node, "func", None), code)
    if text and len(text) <= LONGEST:
        return f"`{text}`"
    if isinstance(node, ast.BinOp) and type(node.op) in RESULTS:
        return f"the {RESULTS[type(node.op)]}"
    return f"the result of `{func}`" if func and len(func) <= LONGEST else ""


def _segment(node: Any, code: CodeType) -> str:
    """Return the text of an expression on one line, or ""."""
    if node is None or node.lineno != node.end_lineno:
        return ""
    line = linecache.getline(code.co_filename, node.lineno).encode()
    return line[node.col_offset : node.end_col_offset].decode(errors="replace")


def _function(code: CodeType) -> str:
    name = code.co_qualname.rpartition("<locals>.")[2]
    return "" if "<" in name else name
