"""Describe parts of a buffer by what they hold: slices of tensors, one after another."""

from __future__ import annotations

import re
from dataclasses import replace

from shardwright.ir.errors import InputError
from shardwright.ir.parts import ONLY, BufferLayout, Stack, TensorPart
from shardwright.ir.text.layout_text import parse_dim, parse_layout


def stack(dim: int, *parts: str | TensorPart, **named: str | TensorPart | None) -> Stack:
    """Return the layout of a buffer that concatenates parts along dimension `dim`.

    `parts`: texts or parts. The text `q` is tensor `q`, whole on every device; `q[{"tp"}, {}]` is
    cut. `named`: for each tensor, the axes that cut it along `dim`, such as `q="tp"` or
    `k='"tp":(1)2'`, or its layout in brackets. Raises InputError, with the place, for an invalid
    text.

    >>> print(stack(0, q="tp", k='"tp":(1)2'))
    stack(0, q[{"tp"}], k[{"tp":(1)2}])
    """
    found = [*map(_part, parts)]
    for name, given in named.items():
        if not isinstance(given, str):
            found.append(replace(given or TensorPart(name), tensor=name))
        elif re.match(r"\s*[\[']", given):
            found.append(_part(f"{name} {given}", name))
        else:
            found.append(TensorPart(name).with_cut(dim, parse_dim(given, name)))
    if not found:
        raise InputError("a stack must have parts", argument="parts", expected='q="tp", k="tp"')
    return Stack(dim, tuple(found))


def cut(
    dim: int, axes: str, of: BufferLayout | str = ONLY, *, size: int | None = None
) -> BufferLayout:
    """Return the layout that cuts a part, or a stack as a whole, along dimension `dim`.

    `axes`: the axes, followed by the rule of the cut unless it makes equal chunks: `tp`, `"tp"
    balanced`. `of`: a stack or a part, by default the tensor with the name of the buffer, or the
    only tensor. `size`: the number of elements along `dim` that each device stores, padding
    included. Raises InputError for an invalid text, and for a stack along a different dimension.

    >>> print(cut(0, "fsdp", stack(0, "q", "k", "v")))
    cut(0, {"fsdp"}, stack(0, q, k, v))
    >>> print(cut(0, "tp", size=38016))
    _[{"tp"} sized(38016)]
    """
    how = parse_dim(axes, "axes")
    if size is not None:
        how = replace(how, rule="sized", numbers=(size,))
    inner = parse_layout(of, "of") if isinstance(of, str) else of
    if isinstance(inner, TensorPart):
        return inner.with_cut(dim, how)
    if inner.dim != dim or inner.cut is not None:
        raise InputError(
            "a stack may be cut only once, along its own dimension",
            argument="dim",
            got=f"{dim} of {inner}",
            expected=f"{inner.dim} of a stack that is not cut",
        )
    return replace(inner, cut=how)


def _part(given: str | TensorPart, argument: str = "parts") -> TensorPart:
    found = parse_layout(given, argument) if isinstance(given, str) else given
    if isinstance(found, TensorPart):
        return found
    raise InputError(
        "the parts of a stack must be tensors, not stacks",
        argument=argument,
        got=found,
        expected='"q", "k", "v"',
    )
