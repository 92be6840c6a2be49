"""Launches in Triton's interpreter without its repeated work. Used in workers only.

The interpreter prepares `triton.language` for every call of a helper function, although the
kernel's launch has just done that; and it checks every integer sum and product for overflow,
although it reports only in debug mode. Together they take two thirds of its time. (An overflow
shows in the addresses, unless the mask excludes its elements.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from triton.runtime import interpreter


@contextmanager
def quick_launches() -> Iterator[None]:
    """Make a launch, inside, prepare once and skip overflow checks."""
    builder = interpreter.interpreter_builder
    options = dataclasses.replace(builder.options, sanitize_overflow=False)
    prepare = _once_a_launch(interpreter._patch_lang)
    with (
        patch.object(interpreter, "_patch_lang", prepare),
        patch.object(builder, "options", options),
    ):
        yield


def _once_a_launch(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `original` for the outermost call; inside it, scopes have nothing to restore."""
    outermost: list[Any] = []

    def prepare(function: Any) -> Any:
        if outermost:
            return interpreter._LangPatchScope()
        scope = original(function)
        restore = scope.restore
        outermost.append(scope)

        def restore_and_leave() -> None:
            restore()
            outermost.clear()

        scope.restore = restore_and_leave
        return scope

    return prepare
