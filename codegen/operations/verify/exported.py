"""Ensure that the checks call every function that a module exports. Used in workers only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

from shardwright.codegen.checks.compare import MismatchError, named


class Exported:
    """The names that a module exports, each with the check in `table` that must call it.

    Raises MismatchError for a name missing from the module or the table.
    """

    def __init__(self, module: ModuleType, table: Mapping[str, str]) -> None:
        self._table, self._called = table, set[str]()
        self._names: list[str] = list(module.__all__)
        for name in self._names:
            exported = named(module, name)
            if name not in table:
                raise MismatchError(f"exports {name}: no check exercises it")
            if callable(exported):
                setattr(module, name, self._counted(name, exported))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*given: Any, **more: Any) -> Any:
            self._called.add(name)
            return function(*given, **more)

        return call

    def exercised(self, module: ModuleType, checks: Collection[str]) -> None:
        """Raise MismatchError if a check in the table was not made or did not call its function."""
        for name in self._names:
            if self._table[name] not in checks:
                raise MismatchError(f"exports {name}: {self._table[name]!r} was not checked")
            if callable(getattr(module, name)) and name not in self._called:
                raise MismatchError(f"exports {name}: {self._table[name]!r} does not call it")
