"""The names of the parameters of a jaxpr."""

from __future__ import annotations

import re
from typing import Any


def parameter_names(jaxpr: Any) -> dict[Any, str]:
    """Return the parameter name of each variable, such as `carry_0` for `carry[0]`. Omit variables
    whose name is unknown."""
    names = getattr(jaxpr.debug_info, "arg_names", None) or ()
    if len(names) != len(jaxpr.invars):
        return {}
    words = (re.sub(r"\W+", "_", name or "").strip("_") for name in names)
    pairs = zip(jaxpr.invars, words, strict=True)
    return {v: word for v, word in pairs if word.isidentifier() and not word.startswith("args_")}
