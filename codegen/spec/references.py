"""Import the user's Python objects, which are named MODULE:NAME."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardwright.ir.errors import InputError


def named(
    reference: str,
    argument: str,
    rule: str = "the object cannot be imported",
    where: str = "the folder of the config",
    home: str = "",
) -> Any:
    """Import the object that a reference names. Raises InputError if that fails.

    `rule`: the rule that the error states. `home`: the folder searched first, by default the
    current one. `where`: the phrase for this folder in the error.
    """
    module, _, name = reference.partition(":")
    sys.path.insert(0, home)
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except Exception as error:  # a user's module may raise anything
        raise InputError(
            rule,
            argument=argument,
            got=f"{reference} ({type(error).__name__}: {error})".splitlines()[0],
            expected=f"module:name, where the module is in {where} or installed",
        ) from error
    finally:
        sys.path.remove(home)


def loader(reference: str, argument: str, home: str = "") -> Any:
    """Import a loader given as MODULE:FUNCTION, from a folder (by default the current one) or an
    installed package."""
    module, _, name = reference.partition(":")
    path = module.removesuffix(".py").replace("/", ".").strip(".")
    if not name:
        path, _, name = path.rpartition(".") if "." in path else (path, "", "load")
        name = name if path else "load"
    if reference != f"{path}:{name}":
        raise InputError(
            "a loader must be given as MODULE:FUNCTION",
            argument=argument,
            got=reference,
            expected=f"{path}:{name}",
        )
    return named(reference, argument, "the loader cannot be imported", home or "this folder", home)


def told(load: Callable[..., Any], like: str) -> Callable[..., Any]:
    """Return a loader that calls `load` and raises its exceptions as InputError. `like`: the
    library of its tensors, "numpy", "torch" or "jax"."""

    @functools.wraps(load)
    def run(rank: int, tensors: dict[str, Any]) -> Any:
        try:
            return load(rank, tensors)
        except (Exception, SystemExit) as error:
            own = traceback.extract_tb(error.__traceback__)[1:]  # empty for wrong arguments
            at = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
            others = {"numpy": "--like torch", "torch": "--like numpy", "jax": "--like numpy"}
            raise InputError(
                f"the loader failed on rank {rank}",
                argument=f"{load.__module__}:{load.__qualname__}",
                got=f"{type(error).__name__}: {error}{at}",
                expected=f"load(rank, tensors) of {like} tensors {', '.join(tensors)}; for "
                f"other tensors, {others.get(like, '--like numpy')}",
            ) from error

    return run if callable(load) else load
