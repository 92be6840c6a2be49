"""Axis names and all-gathers as Python expressions."""

from __future__ import annotations

from collections.abc import Sequence


def axes_text(names: Sequence[str]) -> str:
    """Format the axis names of a collective as an expression: one string, or a tuple."""
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"


def gather_call(given: str, axes: Sequence[str], dim: int, checked: bool) -> tuple[str, list[str]]:
    """Return an all-gather of shards, joined along a dimension.

    Under `check_vma` (`checked`) the result is declared equal on all devices, and JAX takes each
    device's gradient as the whole gradient. Otherwise each device has one term of the gradient, and
    JAX must add the terms.
    """
    ends = ['to="invarying"'] if checked else []
    return "lax.all_gather", [given, axes_text(axes), f"axis={dim}", "tiled=True", *ends]
