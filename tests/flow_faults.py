"""Faults to plant in emitted programs with loops, branches and manual parts, each with its case."""

from __future__ import annotations

import re

from emitted import Plant, once


def _carried_on(text: str) -> str:
    """Carry a sum through a loop as terms, and make it after."""
    text, count = re.subn(r'(layer_reduced) = lax\.psum\((\w+), "t"\)', r"\1 = \2", text, count=1)
    assert count
    made = r"(\n    \(scan,\), _ = lax\.scan\((?:.*\n)*?)(    (?:# .*|integer_pow))"
    planted, count = re.subn(made, r'\1    scan = lax.psum(scan, "t")\n\2', text, count=1)
    assert count
    return planted


FAULTS: dict[str, tuple[str, Plant]] = {
    "a sum carried past what is not linear": ("layers", _carried_on),
    "a sum after a loop that is left out": (
        "micro-batches",
        once(r'lax\.psum\(\((out_0), (a, b)\), "d"\)', r'(\1, *lax.psum((\2), "d"))'),
    ),
    "a sum in every turn, and after the loop": (
        "micro-batches",
        once(r"total_2 = (total \+ loss)", r'total_2 = lax.psum(\1, "d")'),
    ),
    "zeros that are not": (
        "micro-batches",
        once(r"jnp\.zeros\(\(16, 16\)", "0.5 + jnp.zeros((16, 16)"),
    ),
    "a branch that devices do not agree on": (
        "branch",
        once(r"lax\.switch\((\w+),", r'lax.switch((\1 + lax.axis_index("d")) % 2,'),
    ),
    "a manual axis that is summed over": (
        "one axis",
        once(r"= x_2 @", r'= lax.psum(x_2, "t") @'),
    ),
    "a sum of the user's own made twice": (
        "one axis",
        once(r'= (lax\.psum\(dot_general_2, "t"\))', r'= lax.psum(\1, "t")'),
    ),
}
