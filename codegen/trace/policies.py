"""Write a policy of `jax.checkpoint`, which selects the values to keep, as text."""

from __future__ import annotations

from typing import Any

import jax

WORDS = {
    "SaveOnlyTheseNames": "save_only_these_names",
    "SaveAnyNamesButThese": "save_any_names_but_these",
    "SaveAnythingExceptTheseNames": "save_anything_except_these_names",
}
"""The function that makes each class of policies that jax makes from names."""


def policy_text(policy: Any) -> str | None:
    """Return a policy as a Python expression, "" for no policy, or None if it cannot be written."""
    if policy is None:
        return ""
    known = jax.checkpoint_policies
    for name in sorted(dir(known), reverse=True):
        if not name.startswith("_") and getattr(known, name) == policy:
            return f"jax.checkpoint_policies.{name}"
    made = WORDS.get(type(policy).__name__)
    sets = [value for value in vars(policy).values() if isinstance(value, frozenset)]
    if made is None or len(sets) != 1:
        return None
    names = ", ".join(f'"{name}"' for name in sorted(map(str, sets[0])))
    return f"jax.checkpoint_policies.{made}({names})"
