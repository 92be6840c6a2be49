"""The text of a module without the functions that nothing in it uses."""

from __future__ import annotations

import ast
from collections.abc import Collection


def pruned(text: str, keep: Collection[str] = ()) -> str:
    """Return the module without top-level functions that no other statement of it leads to.
    Those named in `keep` and in `__all__` stay, with what they use."""
    body = ast.parse(text).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    rest = [node for node in body if not isinstance(node, ast.FunctionDef)]
    found, waiting = set[str](), [*keep, *_names(rest)]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in found:
            found.add(name)
            waiting += _names([functions[name]])
    lines = text.splitlines(keepends=True)
    for name, node in reversed(functions.items()):
        if name not in found:
            start = min([node.lineno, *(line.lineno for line in node.decorator_list)])
            # With the two blank lines after it: a comment before it goes for what follows.
            del lines[start - 1 : (node.end_lineno or start) + 2]
    return "".join(lines)


def _names(nodes: Collection[ast.stmt]) -> list[str]:
    """Return the names that statements use, and the strings, which `__all__` has for names."""
    every = [one for node in nodes for one in ast.walk(node)]
    names = [one.id for one in every if isinstance(one, ast.Name)]
    return names + [str(one.value) for one in every if isinstance(one, ast.Constant)]
