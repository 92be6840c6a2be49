"""What templates of kernels may be given."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from dataclasses import dataclass

FLOW = ast.IfExp | ast.comprehension | ast.Lambda | ast.NamedExpr | ast.BoolOp


@dataclass(frozen=True)
class Given:
    """What a template is given: the names of values that it prints in comments, and the functions
    that expressions call."""

    comments: Set[str]
    calls: Set[str]

    def strange(self, values: Mapping[str, object]) -> list[str]:
        """Return those of its values that are neither numbers nor comments, nor expressions that
        only compute."""
        return [name for name, value in values.items() if not self.is_plain(name, value)]

    def is_plain(self, name: str, value: object) -> bool:
        """Whether a value is a number, a comment, or an expression that only computes."""
        if isinstance(value, int):
            return True
        if name in self.comments:
            return "\n" not in str(value)
        try:
            nodes = list(ast.walk(ast.parse(str(value), mode="eval")))
        except SyntaxError:
            return False
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        return called <= self.calls and not any(isinstance(node, FLOW) for node in nodes)
