"""Import the sibling module that a derivative needs."""

import importlib
import os
import runpy


def host_beside(name, backward, of):
    """Return two values: the host of module `backward`, a sibling of module `name`, and the
    sibling's full name, or its path if the modules are standalone files. `of`: the operation and
    the modules that its derivative needs, as text for the error message. Raises ImportError if
    the sibling is missing."""
    package = name.rpartition(".")[0]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{backward}.py")
    beside = f"{package}.{backward}" if package else path
    try:
        # A standalone file belongs to no package: run it by its path.
        found = vars(importlib.import_module(beside)) if package else runpy.run_path(path)
    except (FileNotFoundError, ModuleNotFoundError):
        raise ImportError(f"the derivative of {of}, but {beside} is missing") from None
    return found["_HOST"], beside
