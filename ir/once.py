"""Values derived from an immutable object, computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar, cast

S = TypeVar("S", bound="Once")
T = TypeVar("T")


class Once:
    """An immutable object that caches values derived from it."""

    @cached_property
    def _made(self) -> dict[Callable[..., object], object]:
        return {}

    def once(self: S, make: Callable[[S], T]) -> T:
        """Return `make(self)`, called only the first time."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])
