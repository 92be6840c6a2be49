"""The statements of a step, and their text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardwright.codegen.backends.jax_host import LIBRARIES
from shardwright.codegen.text.python_text import called

_OWN = {*LIBRARIES, "number_of", "groups_along", "sends_along", "moved_by_boxes", "EMPTY"}
"""The names that statements may use: support functions, module constants and libraries."""


def used_by(texts: Iterable[str]) -> frozenset[str]:
    """Return the names in `_OWN` that expressions or statements use.

    >>> sorted(used_by(['jnp.where(lax.axis_index("np") == 0, x, EMPTY)']))
    ['EMPTY', 'jnp', 'lax']
    """
    found = (re.findall(r"(?<![\w.])[A-Za-z_]\w*", re.sub(r'"[^"]*"', "", text)) for text in texts)
    return frozenset(name for names in found for name in names) & _OWN


def called_by_steps(used: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the support functions among used names, by support module."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted({*used} - {*LIBRARIES}):
        module = "xla_boxes" if name == "moved_by_boxes" else "xla_steps"
        found[module] = (*found.get(module, ()), "bits_from" if name == "EMPTY" else name)
    return found


@dataclass(frozen=True)
class Statement:
    """`x = function(arguments)` or, without a function, `x = x`.

    `name`: the variable that it assigns, either `x` or an argument of the next statement.
    """

    function: str
    arguments: tuple[str, ...]
    name: str = ""

    @property
    def uses(self) -> frozenset[str]:
        """The names in `_OWN` that the statement uses."""
        return used_by((self.function, *self.arguments))

    def of(self, name: str) -> Statement:
        """Return the statement with the variable `name` in place of the argument `x`."""
        function = self.function
        if function.startswith("x."):
            function = name + function[1:]
        arguments = tuple(name if each == "x" else each for each in self.arguments)
        return replace(self, function=function, arguments=arguments)

    def lines(self, name: str) -> list[str]:
        """Return the lines of the statement that assigns `name`."""
        if not self.function:
            return [f"{name} = x"]
        return called(f"{self.name or name} = {self.function}", list(self.arguments), indents=1)
