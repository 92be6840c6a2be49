"""References to Python objects of the user: MODULE:NAME."""

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
    """Import the object that a reference names; InputError if that fails.

    `rule`: the requirement stated in errors. `home`: the folder searched first, by default the
    current one. `where`: the name used in errors.
    """
    module, _, name = reference.partition(":")
    sys.path.insert(0, home)
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        raise InputError(
            rule,
            argument=argument,
            got=f"{reference} ({type(error).__name__}: {error})".splitlines()[0],
            expected=f"module:name, the module in {where} or installed",
        ) from error
    finally:
        sys.path.remove(home)


def loader(reference: str, argument: str, home: str = "") -> Any:
    """Import a loader given as MODULE:FUNCTION, from a folder (by default the current one) or an
    installed package."""
    rule, where = "a loader must be there to be imported", home or "this folder"
    return named(reference, argument, rule, where, home)
