"""The arrays that a function closes over: short ones are written in the module, others in a data
file."""

from __future__ import annotations

import base64
import hashlib
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from shardwright.codegen.ops.literals import integers, number
from shardwright.codegen.ops.random_ops import KEY_KINDS

STORED = "constants.npz.txt"
"""The file of long arrays: an .npz in base64, because all files of a bundle are text."""
LONGEST = 64
"""The most elements of an array that is written out in a module."""


def array_text(place: int, array: Any) -> str:
    """Return the expression for an array that the function closes over; `place`: its number."""
    if _is_key(array):
        kind = KEY_KINDS[str(array.dtype)]
        data = array_text(place, jax.random.key_data(array))
        return f'jax.random.wrap_key_data({data}, impl="{kind}")'
    if array.size > LONGEST:
        view = "" if _is_numpys(array) else f".view(jnp.{array.dtype})"
        return f'jnp.asarray(CONSTANTS["array_{place}"]{view})'
    values = ", ".join(map(number, np.asarray(array).ravel().tolist()))
    return f"jnp.array([{values}], jnp.{array.dtype}).reshape({integers(array.shape)})"


def stored_text(arrays: Sequence[Any], calls: Mapping[str, np.ndarray]) -> str:
    """Return the text of the file with long arrays and stored calls, or "" if there are none."""
    plain = [jax.random.key_data(array) if _is_key(array) else array for array in arrays]
    found: dict[str, Any] = {
        f"array_{place}": _raw(array) for place, array in enumerate(plain) if array.size > LONGEST
    }
    found.update(calls)
    if not found:
        return ""
    file = io.BytesIO()
    np.savez(file, **found)
    return "\n".join(textwrap.wrap(base64.b64encode(file.getvalue()).decode(), 100)) + "\n"


def constant_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a module that read the data file and raise if its contents differ from
    `text`."""
    if not text:
        return ()
    return (
        "",
        "",
        "def stored(name, digest):",
        '    """Return the arrays that stand in base64 beside this module."""',
        '    data = base64.b64decode(Path(__file__).with_name(name).read_text("utf-8"))',
        "    if hashlib.sha256(data).hexdigest() != digest:",
        '        raise ValueError(f"{name} has changed since it was emitted: emit again")',
        "    return np.load(io.BytesIO(data))",
        "",
        "",
        "CONSTANTS = stored(",
        f'    "{STORED}", "{hashlib.sha256(base64.b64decode(text)).hexdigest()}"',
        ")",
    )


IMPORTS = (
    "import base64",
    "import hashlib",
    "import io",
    "from pathlib import Path",
    "",
    "import numpy as np",
)
"""The imports that the lines of `constant_lines` need."""


def _is_key(array: Any) -> bool:
    return str(array.dtype).startswith("key")


def _is_numpys(array: Any) -> bool:
    return np.dtype(array.dtype).kind in "biufc" and "float8" not in str(array.dtype)


def _raw(array: Any) -> np.ndarray:
    """Return an array as it is stored: as integers if numpy's file format lacks its dtype."""
    made = np.ascontiguousarray(array)
    return made if _is_numpys(array) else made.view(f"u{made.dtype.itemsize}")
