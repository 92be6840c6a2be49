"""The module beside another one that its derivative needs."""

import importlib
import os
import runpy


def host_beside(name, backward, of):
    """Return the host of the module `backward` beside the module `name`, which the derivative of
    something needs, and where that is. Raises ImportError where no such module stands there."""
    package = name.rpartition(".")[0]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{backward}.py")
    beside = f"{package}.{backward}" if package else path
    try:
        # One file that stands alone is found by its path.
        found = vars(importlib.import_module(beside)) if package else runpy.run_path(path)
    except (FileNotFoundError, ModuleNotFoundError):
        raise ImportError(f"the derivative of {of}: {beside} is missing") from None
    return found["_HOST"], beside
