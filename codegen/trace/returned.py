"""Find the variables that a function returns: `("params", "loss")` for `return params, loss`."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable, Iterator
from typing import Any


def returned_variables(fn: Callable[..., Any], results: Any) -> tuple[str, ...]:
    """Return the variable that holds each item of the results, if they are a tuple, or else the
    variable that holds all of them. It is "" for a value without a variable. Return () if the
    function's source is unknown, or if it returns different variables in different places."""
    found = {_variables(node.value) for node in _returns(fn)}
    variables = found.pop() if len(found) == 1 else ()
    count = len(results) if type(results) is tuple else 1
    return variables if len(variables) == count else ()


def _returns(fn: Any) -> Iterator[ast.Return]:
    """Yield the return statements of a function, without those of functions in it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return
    text = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if start == code.co_firstlineno:
                yield from _own_returns(node)


def _own_returns(node: ast.AST) -> Iterator[ast.Return]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Return):
            yield each
        elif not isinstance(each, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own_returns(each)


def _variables(node: ast.expr | None) -> tuple[str, ...]:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(each.id if isinstance(each, ast.Name) else "" for each in items)
