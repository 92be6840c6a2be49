"""Cache the values of functions of an immutable object on the object."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar, cast

S = TypeVar("S", bound="Once")
T = TypeVar("T")


class Once:
    """The base class of immutable objects that cache the values of functions of themselves."""

    @cached_property
    def _made(self) -> dict[Callable[..., object], object]:
        return {}

    def once(self: S, make: Callable[[S], T]) -> T:
        """Return `make(self)`, computed by the first call and cached for later calls."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])
