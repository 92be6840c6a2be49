"""A stand-in for `lax.ragged_all_to_all` on devices that lack it. Imported only by workers.

On such devices a module takes another branch of `lax.platform_dependent`; with the stand-in it
takes the branch with the collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax.numpy as jnp
from jax import lax


@contextmanager
def by_definition() -> Iterator[mock.Mock]:
    """Replace `lax.ragged_all_to_all` in this context by its documented meaning. On every platform,
    take the default branch of `lax.platform_dependent` if it calls the collective. Yield the mock,
    which counts the calls."""
    as_it_is = lax.platform_dependent

    def chosen(*given: Any, default: Callable[..., Any], **platforms: Callable[..., Any]) -> Any:
        before = stand_in.call_count
        result = default(*given)
        if stand_in.call_count > before:
            return result
        return as_it_is(*given, default=default, **platforms)

    with (
        mock.patch.object(lax, "ragged_all_to_all", side_effect=_defined) as stand_in,
        mock.patch.object(lax, "platform_dependent", side_effect=chosen),
    ):
        yield stand_in


def _defined(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
) -> Any:
    """Return `output` with the rows that every device sends to this one, one slice from each.

    JAX leaves the result undefined if a slice does not have the size that its receiver expects, or
    is outside one of the arrays. Here such a slice changes nothing.
    """
    me = lax.axis_index(axis_name)
    tables = (input_offsets, send_sizes, output_offsets)
    rows, sent = lax.all_gather(operand, axis_name), lax.all_gather(tables, axis_name)
    if recv_sizes.shape != (count := rows.shape[0],):
        expected = f"({count},): one size per device"
        raise ValueError(f"recv_sizes: got shape {recv_sizes.shape}, expected {expected}")
    place = jnp.arange(output.shape[0])
    for sender in range(rows.shape[0]):
        read, size, write = (table[sender, me] for table in sent)
        is_sound = (size == recv_sizes[sender]) & (read >= 0) & (write >= 0)
        is_sound &= (read + size <= operand.shape[0]) & (write + size <= output.shape[0])
        arrives = (place >= write) & (place < write + size) & is_sound
        found = jnp.take(rows[sender], place - write + read, axis=0, mode="clip")
        output = jnp.where(arrives.reshape(-1, *[1] * (output.ndim - 1)), found, output)
    return output
