"""Functions of the user's, by where they stand: MODULE:NAME."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from shardwright.ir.errors import InputError


def named(
    reference: str,
    argument: str,
    rule: str = "what a table names must be there to be imported",
    where: str = "the folder of the config",
) -> Any:
    """Return what stands in a module under a name; InputError where it cannot be imported.

    `rule`: what the reference must be. `where`: the folder in which modules are looked for first.
    """
    module, _, name = reference.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the module raises
        raise InputError(
            rule,
            argument=argument,
            got=f"{reference} ({type(error).__name__}: {error})".splitlines()[0],
            expected=f"module:name, the module in {where} or installed",
        ) from error
    finally:
        sys.path.remove("")


def loader(reference: str, argument: str) -> Any:
    """Return a loader by MODULE:FUNCTION, the module in this folder or installed."""
    return named(reference, argument, "a loader must be there to be imported", "this folder")
