"""Text in emitted functions that emission could have decided: tests that are always true or false,
expressions that are always 0, assignments and kernel parameters that nothing uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import sympy

Function = ast.FunctionDef | ast.AsyncFunctionDef
GIVEN = {"peers", "out", "receiver", "BLOCK"}  # to every kernel, by whoever launches it
DIVIDE = {ast.FloorDiv: "floordiv", ast.Mod: "mod"}


def left_over(text: str) -> list[str]:
    """Return each finding in the functions of a module, as `function: expression`."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]
    return [f"{each.name}: {what}" for each in functions for what in _findings(each)]


def _findings(function: Function) -> Iterator[str]:
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and _is_decided(node):
            yield f"`{ast.unparse(node)}` is decided"
        if isinstance(node, ast.BinOp) and _value(node) == 0:
            yield f"`{ast.unparse(node)}` is 0"
    if _is_kernel(function):
        stored |= {each.arg for each in function.args.args} - GIVEN
    yield from (f"`{name}` is unused" for name in sorted(stored - read - {"_"}))


def _is_kernel(function: Function) -> bool:
    return any("jit" in ast.unparse(each) for each in function.decorator_list)


def _is_decided(test: ast.Compare) -> bool:
    """Return whether the two sides differ by a number."""
    if len(test.ops) != 1 or isinstance(test.ops[0], ast.In | ast.NotIn | ast.Is | ast.IsNot):
        return False
    return bool((_value(test.left) - _value(test.comparators[0])).is_number)


def _value(node: ast.expr) -> sympy.Expr:
    """Return an expression as a polynomial; whatever is not +, - or * is a symbol of its own."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sympy.Integer(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp):
        first, second = _value(node.left), _value(node.right)
        made = {ast.Add: first + second, ast.Sub: first - second, ast.Mult: first * second}
        if type(node.op) in made:
            return sympy.expand(made[type(node.op)])
        if type(node.op) in DIVIDE:
            if second == 1:
                return first if isinstance(node.op, ast.FloorDiv) else sympy.Integer(0)
            return sympy.Function(DIVIDE[type(node.op)])(first, second)
    return sympy.Symbol(ast.unparse(node))
