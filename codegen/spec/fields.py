"""Read the fields that tables and flags share, each from what a user wrote."""

from __future__ import annotations

from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.registry import DEFAULT_BACKENDS, NAMES
from shardwright.ir.errors import InputError
from shardwright.ir.given import read_text


def read_backends(value: object) -> tuple[str, ...]:
    """Read backends given as a list or a string. Emission checks whether they exist."""
    if isinstance(value, str):
        return split_backends(value)
    if isinstance(value, list | tuple):
        return tuple(read_text("backends", name) for name in value)
    raise InputError(
        "backends must be a list of names, or a string with commas",
        argument="backends",
        got=value,
        expected=f"{list(DEFAULT_BACKENDS)} or '{','.join(DEFAULT_BACKENDS)}'",
    )


def split_backends(text: str) -> tuple[str, ...]:
    """Split `a,b` into backends."""
    return tuple(name.strip() for name in text.split(","))


def in_order(backends: tuple[str, ...]) -> tuple[str, ...]:
    """Sort backends into registry order, unknown ones last."""
    return tuple(sorted(backends, key=lambda name: (*NAMES, name).index(name)))


def read_topology(value: object) -> str | None:
    """Return the canonical text of a topology, or None for None. If a file is given, the text has
    the numbers in the file."""
    if value is None:
        return None
    return str(topology_of(read_text("topology", value)))


def read_limit(value: object) -> int | None:
    """Parse a number of bytes given as an integer or a string; None stays None. The planner
    checks whether the limit suffices."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 30:
        value = int(value)
    if value is None or (type(value) is int and value > 0):
        return value
    raise InputError(
        "a memory limit must be a number of bytes",
        argument="memory_limit",
        got=value,
        expected="an integer of at least 1",
    )


def read_switch(key: str, value: object) -> bool:
    """Return `value` if it is a boolean. Raise InputError for any other type."""
    if isinstance(value, bool):
        return value
    raise InputError(
        f"{key} must be true or false", argument=key, got=value, expected="true or false"
    )
