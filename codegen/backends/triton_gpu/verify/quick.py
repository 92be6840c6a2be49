"""Speed up launches in Triton's interpreter. Imported only by workers.

The interpreter patches `triton.language` on every call of a helper function, although the kernel's
launch has already done so. It also checks every integer sum and product for overflow, although it
reports overflows only in debug mode. Together these take two thirds of its time. (Checks of
addresses find an overflow anyway, unless a mask excludes the affected elements.)
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
    """Make launches in this context patch `triton.language` only once, and skip overflow checks."""
    builder = interpreter.interpreter_builder
    options = dataclasses.replace(builder.options, sanitize_overflow=False)
    prepare = _once_a_launch(interpreter._patch_lang)
    with (
        patch.object(interpreter, "_patch_lang", prepare),
        patch.object(builder, "options", options),
    ):
        yield


def _once_a_launch(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls `original`, or returns an empty scope while the scope of an
    earlier call is open."""
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
