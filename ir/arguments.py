"""Unknown arguments of public functions, with the closest name as a suggestion."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from shardwright.ir.errors import unknown

P = ParamSpec("P")
R = TypeVar("R")
NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def known_arguments(fn: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises InputError for a keyword argument that it does not have.

    >>> known_arguments(lambda backends=(): backends)(backend="jax_xla")
    Traceback (most recent call last):
    shardwright.ir.errors.InputError: unknown argument; did you mean backends?
    got: backend
    expected: backends
    """
    known = [name for name, each in inspect.signature(fn).parameters.items() if each.kind in NAMED]

    @functools.wraps(fn)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise unknown("unknown argument", name, known, _called(fn))
        return fn(*args, **kwargs)

    return checked


def _called(fn: Callable[..., object]) -> str | None:
    return None if fn.__name__ == "<lambda>" else f"sw.{fn.__name__}"
