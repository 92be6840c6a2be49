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
    home: str = "",
) -> Any:
    """Return what stands in a module under a name; InputError if it cannot be imported.

    `rule`: what the reference must be. `home`: the folder in which modules are looked for first, by
    default this one. `where`: how an error calls it.
    """
    module, _, name = reference.partition(":")
    sys.path.insert(0, home)
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
        sys.path.remove(home)


def loader(reference: str, argument: str, home: str = "") -> Any:
    """Return a loader by MODULE:FUNCTION, the module in a folder, by default this one, or
    installed."""
    rule, where = "a loader must be there to be imported", home or "this folder"
    return named(reference, argument, rule, where, home)
