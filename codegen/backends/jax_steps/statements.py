"""The statements of a step, and their text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from shardwright.codegen.backends.jax_host import LIBRARIES
from shardwright.codegen.text.python_text import called

OwnName = Literal[
    "number_of",
    "groups_along",
    "sends_along",
    "moved_by_boxes",
    "EMPTY",
    "jnp",
    "np",
    "lax",
    "pl",
    "pltpu",
]
"""The names that statements may use: support functions, module constants and libraries."""


def called_by_steps(used: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the support functions among used names, by support module."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted({*used} - {*LIBRARIES}):
        module = "xla_boxes" if name == "moved_by_boxes" else "xla_steps"
        found[module] = (*found.get(module, ()), "bits_from" if name == "EMPTY" else name)
    return found


@dataclass(frozen=True)
class PythonValue:
    """A Python expression and the names that it uses."""

    text: str
    uses: tuple[OwnName, ...] = ()


ZERO = PythonValue("0")


@dataclass(frozen=True)
class Statement:
    """`x = function(arguments)` or, without a function, `x = x`.

    `uses`: the names in its arguments, and the name of its function if that is imported; `name`:
    the variable that it assigns, either `x` or an argument of the next statement.
    """

    function: str
    arguments: tuple[str, ...]
    uses: tuple[OwnName, ...] = ()
    name: str = ""

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
