"""Break Python statements into lines as a formatter would."""

from __future__ import annotations

import ast
import math
import textwrap
from collections.abc import Iterable, Sequence

import sympy

from shardwright.codegen.text.index_functions import IndexFunction
from shardwright.ir.algebra.printers import Printer
from shardwright.ir.dtypes import neutral

WIDTH = 100
INDENT = "    "
SHORT = 24
"""The length below which an element is short, in characters. Short elements of a list share
lines; long elements have a line each."""


def wrapped(line: str, width: int = WIDTH) -> list[str]:
    """Wrap a line of prose, and indent all lines but the first more deeply."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip())) + INDENT
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def exploded(prefix: str, items: list[str], ends: str = "()", suffix: str = "") -> list[str]:
    """Return `prefix(a, b)suffix` on one line if it fits, else with one item per line."""
    line = f"{prefix}{ends[0]}{', '.join(items)}{ends[1]}{suffix}"
    if len(line) <= WIDTH:
        return [line]
    return [prefix + ends[0], *(f"{INDENT}{item}," for item in items), ends[1] + suffix]


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines, indented one level deeper; empty lines stay empty."""
    return [INDENT + line if line else "" for line in lines]


def called(function: str, arguments: list[str], suffix: str = "", indents: int = 0) -> list[str]:
    """Return `function(arguments)suffix` formatted at this indentation."""
    room = WIDTH - indents * len(INDENT)
    joined = ", ".join(arguments)
    if len(f"{function}({joined}){suffix}") <= room:
        return [f"{function}({joined}){suffix}"]
    if len(INDENT + joined) <= room:
        return [f"{function}(", INDENT + joined, f"){suffix}"]
    return [f"{function}(", *(f"{INDENT}{argument}," for argument in arguments), f"){suffix}"]


def formatted(text: str, first: int, indent: int) -> str:
    """Break an expression into lines that fit. `first`: the number of characters before it on
    its line; `indent`: the indentation of later lines, which the result omits."""
    if first + len(text) <= WIDTH or not text.endswith((")", "]")):
        return text
    node = ast.parse(text, mode="eval").body
    parts: Sequence[ast.expr | ast.keyword]
    if isinstance(node, ast.Call):
        parts, head = [*node.args, *node.keywords], f"{ast.get_source_segment(text, node.func)}("
    elif isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        head = f"{ast.get_source_segment(text, node.value)}["
    elif isinstance(node, ast.Tuple | ast.List):
        parts, head = node.elts, text[0]
    else:
        return text
    if first + len(head) > WIDTH:  # the called or indexed expression is itself too long
        own = len(head) - 1
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            own = len(ast.get_source_segment(text, node.func.value) or "")
        return formatted(text[:own], first, indent) + text[own:]
    items = [ast.get_source_segment(text, each) or "" for each in parts]
    deeper = indent + len(INDENT)
    joined = ", ".join(items) + "," * (isinstance(node, ast.Tuple) and len(items) == 1)
    if deeper + len(joined) <= WIDTH:
        return f"{head}\n{INDENT}{joined}\n{text[-1]}"
    if isinstance(node, ast.List) and all(len(item) < SHORT for item in items):
        filled = textwrap.fill(joined + ",", WIDTH - deeper)
        return "\n".join((head, textwrap.indent(filled, INDENT), text[-1]))
    broken = [formatted(each, deeper + 1, deeper) + "," for each in items]
    lines = "\n".join(broken).replace("\n", f"\n{INDENT}")
    return f"{head}\n{INDENT}{lines}\n{text[-1]}"


def fitted_call(
    function: str, arguments: list[str], suffix: str = "", indents: int = 0
) -> list[str]:
    """Return a call like `called`, but split long arguments into lines too."""
    lines = called(function, arguments, suffix, indents)
    return [part for line in lines for part in fitted(line, indents)]


def fitted(line: str, indents: int = 0) -> list[str]:
    """Break a statement, or an argument with its comma, into lines that fit at this indentation."""
    if len(line) + indents * len(INDENT) <= WIDTH:
        return [line]
    own = " " * (len(line) - len(line.lstrip()))
    target, _, made = line.strip().rpartition(" = ") if " = " in line else ("", "", line.strip())
    comma = "," if made.endswith(",") else ""
    head, made = f"{target} = " if target else "", made.removesuffix(",")
    deep = indents * len(INDENT) + len(own)
    starts_call = made.endswith(("(", "["))
    if ", " in target and (starts_call or deep + len(head) >= WIDTH):
        value = made if starts_call else formatted(made, deep + len(") = "), deep)
        head, text = "", f"{_targets(target, deep)} = {value}"
    elif starts_call:
        text = formatted(made[:-1], deep + len(head) + 1, deep) + made[-1]
    else:
        text = _fitted(made, len(head), deep, len(comma))
    return [own + each for each in f"{head}{text}{comma}".split("\n")]


def _targets(target: str, indent: int) -> str:
    names = ast.parse(target, mode="eval").body
    parts = names.elts if isinstance(names, ast.Tuple) else [names]
    deeper = indent + len(INDENT)
    items = (ast.get_source_segment(target, each) or "" for each in parts)
    made = (formatted(item, deeper + 1, deeper) + "," for item in items)
    return "\n".join(["(", *(textwrap.indent(item, INDENT) for item in made), ")"])


def returned(text: str, indents: int) -> list[str]:
    """Return the lines of a `return` statement that fit at this indentation."""
    room, start = WIDTH - indents * len(INDENT), "return "
    if len(start + text) <= room:
        return [start + text]
    node = ast.parse(text, mode="eval").body
    is_bare = isinstance(node, ast.Tuple) and bool(node.elts) and node.elts[0].col_offset == 0
    text = f"({text})" if is_bare else text
    return (start + formatted(text, WIDTH - room + len(start), WIDTH - room)).split("\n")


def _fitted(made: str, head: int, indent: int, after: int) -> str:
    """Break an expression into lines, in parentheses if it has no brackets to break at. `head`
    and `after`: the number of characters before and after it."""
    node = ast.parse(made, mode="eval").body
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Lambda):
        start = made.index("(", node.func.end_col_offset) + 1
        return f"{made[:start]}\n{INDENT}{made[start:-1]}\n)"
    text = formatted(made, indent + head + after, indent)
    if "\n" in text or not head:
        return text
    parts = [made]
    if len(INDENT + made) + indent > WIDTH and isinstance(node, ast.BinOp):
        left = ast.get_source_segment(made, node.left) or ""
        parts = [left, made[len(left) :].lstrip()]
    return "\n".join(["(", *(INDENT + part for part in parts), ")"])


def unpacked(names: list[str], call: str) -> tuple[str, ...]:
    """Return `a, b = call` at one indentation, with one name per line if it is too long."""
    if len(names) == 1:
        return (f"({names[0]},) = {call}",)
    line = f"{', '.join(names)} = {call}"
    if len(line) + len(INDENT) <= WIDTH:
        return (line,)
    return ("(", *(f"{INDENT}{name}," for name in names), f") = {call}")


def broken(printer: Printer, value: sympy.Expr, room: int) -> str:
    """Return an expression, broken at the terms of a sum if it is longer than `room`."""
    text = printer.text(value)
    if len(text) <= room or not isinstance(value, sympy.Add):
        return text
    return "\n".join(["(", *(INDENT + term for term in printer.terms(value)), ")"])


def statement_lines(printer: Printer, name: str, value: sympy.Expr, depth: int = 1) -> list[str]:
    """Return `name = value` as lines, broken if it does not fit one line at this indentation."""
    start = f"{name} = "
    return (start + broken(printer, value, WIDTH - depth * len(INDENT) - len(start))).splitlines()


def function_lines(printer: Printer, function: IndexFunction) -> list[str]:
    """Return the body of an index function after its docstring."""
    lines: list[str] = []
    for assignment in function.lines:
        lines += statement_lines(printer, assignment.name, assignment.value)
    results = [printer.text(result) for result in function.results]
    if function.single:
        return [*lines, f"return {results[0]}"]
    joined = ", ".join(results)
    if len(results) > 1 and len(f"{INDENT}return {joined}") <= WIDTH:
        return [*lines, f"return {joined}"]
    if len(results) == 1:
        return [*lines, f"return ({joined},)"]
    items = (line for result in function.results for line in _item_lines(printer, result))
    return [*lines, "return (", *items, ")"]


def _item_lines(printer: Printer, value: sympy.Expr) -> list[str]:
    """Return an item of an exploded tuple as lines, broken at the terms of a sum if it is long."""
    line = f"{INDENT}{printer.text(value)},"
    if len(line) + len(INDENT) <= WIDTH or not isinstance(value, sympy.Add):
        return [line]
    *terms, last = printer.terms(value)
    return [*(INDENT + term for term in terms), f"{INDENT}{last},"]


def neutral_text(dtype: str, operator: str) -> str:
    """Return the neutral element of an operator as a Python expression."""
    value = neutral(dtype, operator)
    return f'float("{value}")' if math.isinf(value) else str(value)
