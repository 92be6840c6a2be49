"""Statements of a step, and their printing."""

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
"""Names of support functions, module constants and libraries."""


def called_by_steps(used: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names that are support functions, by module."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted({*used} - {*LIBRARIES}):
        module = "xla_boxes" if name == "moved_by_boxes" else "xla_steps"
        found[module] = (*found.get(module, ()), "bits_from" if name == "EMPTY" else name)
    return found


@dataclass(frozen=True)
class PythonValue:
    """A Python expression and the names it uses."""

    text: str
    uses: tuple[OwnName, ...] = ()


ZERO = PythonValue("0")


@dataclass(frozen=True)
class Statement:
    """`x = function(arguments)`, or `x = x` without a function; `uses`: names needed by its
    arguments, and the function if from support or a library; `name`: a further result for the
    next statement."""

    function: str
    arguments: tuple[str, ...]
    uses: tuple[OwnName, ...] = ()
    name: str = ""

    def of(self, name: str) -> Statement:
        """Return the statement applied to another variable than `x`."""
        function = self.function
        if function.startswith("x."):
            function = name + function[1:]
        arguments = tuple(name if each == "x" else each for each in self.arguments)
        return replace(self, function=function, arguments=arguments)

    def lines(self, name: str) -> list[str]:
        """Return the statement with the first `x` renamed."""
        if not self.function:
            return [f"{name} = x"]
        return called(f"{self.name or name} = {self.function}", list(self.arguments), indents=1)
