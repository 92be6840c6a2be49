"""Values derived from an immutable object, computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar, cast

S = TypeVar("S", bound="Once")
T = TypeVar("T")


class Once:
    """Something immutable that keeps what functions make of it."""

    @cached_property
    def _made(self) -> dict[Callable[..., object], object]:
        return {}

    def once(self: S, make: Callable[[S], T]) -> T:
        """Return `make(self)`, which is called for the first time only."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])
