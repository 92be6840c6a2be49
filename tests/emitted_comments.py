"""The names in the comments of emitted modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

NAMED = re.compile(
    r"(splits )?(?:dimension \d+ of|reduced value of|\(of|takes|needs) "
    r"(?!the |a value|dimension |\(|each |\[)([A-Za-z_]\w*)"
)
"""The name of a value in a reason. An op may come later whose result a split concerns."""


def unknown_names(text: str) -> list[str]:
    """The values that comments name and that their function does not have: each must be one of its
    parameters, or be assigned in it at the latest by the statement after the comment."""
    lines = text.splitlines()
    found = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            known = {argument.arg: 0 for argument in function.args.args}
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    known[node.id] = min(known.get(node.id, node.lineno), node.lineno)
            starts = sorted(each.lineno for each in function.body)
            for first, said in _comments(lines, function):
                after = next((line for line in starts if line > first), function.end_lineno or 0)
                for is_later, name in NAMED.findall(said):
                    if name not in known or (known[name] > after and not is_later):
                        found.append(f"{name} in {function.name}: {said}")
    return found


def _comments(lines: list[str], function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """The comments on communications in a function, each with the number of its first line."""
    number = function.lineno
    while number <= (function.end_lineno or 0):
        line = lines[number - 1].strip()
        if re.match(r"# \[C\d+\]", line):
            first, said = number, line.removeprefix("# ")
            while lines[number].strip().startswith("#   "):
                said += " " + lines[number].strip().removeprefix("#").strip()
                number += 1
            yield first, said
        number += 1
