"""Statements of a step, and how they print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from shardwright.codegen.backends.jax_host import LIBRARIES
from shardwright.codegen.emit.python_text import called

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
"""Functions of support, constants of the module, and libraries."""


def called_by_steps(used: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return those of some names that are functions of support, by their modules."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted({*used} - {*LIBRARIES}):
        module = "xla_boxes" if name == "moved_by_boxes" else "xla_steps"
        found[module] = (*found.get(module, ()), "bits_from" if name == "EMPTY" else name)
    return found


@dataclass(frozen=True)
class PythonValue:
    """A Python expression, and what it uses."""

    text: str
    uses: tuple[OwnName, ...] = ()


ZERO = PythonValue("0")


@dataclass(frozen=True)
class Statement:
    """`x = function(arguments)`, or `x = x` without a function; `uses`: what
    its arguments need, and the function where that is one of support or a library; `name`: what it
    makes beside `x`, for the next one."""

    function: str
    arguments: tuple[str, ...]
    uses: tuple[OwnName, ...] = ()
    name: str = ""

    def of(self, name: str) -> Statement:
        """Return the statement about another variable than `x`."""
        function = self.function
        if function.startswith("x."):
            function = name + function[1:]
        arguments = tuple(name if each == "x" else each for each in self.arguments)
        return replace(self, function=function, arguments=arguments)

    def lines(self, name: str) -> list[str]:
        """Return the statement with another name in the place of the first `x`."""
        if not self.function:
            return [f"{name} = x"]
        return called(f"{self.name or name} = {self.function}", list(self.arguments), indents=1)
