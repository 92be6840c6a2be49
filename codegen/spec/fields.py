"""Read the fields that tables and flags share, each from what a user wrote."""

from __future__ import annotations

import json
import re

from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.registry import DEFAULT_BACKENDS, NAMES
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.text.parse import parse_mesh, parse_shape

INTERPRETERS_IDS = range(2000, 2000 + 4 * 64)
"""The ids that JAX's interpreter of TPU kernels assigns to its own semaphores. A kernel with one
of these collective ids would wait on a semaphore that other code signals."""


def read_mesh(key: str, value: object) -> Mesh:
    """Parse a mesh; errors name `key`."""
    return parse_mesh(read_text(key, value), key)


def read_shape(value: object) -> tuple[int, ...]:
    """Parse a shape given as a list or a string."""
    if isinstance(value, str):
        return parse_shape(value, "shape")
    if isinstance(value, list | tuple) and all(type(extent) is int for extent in value):
        return tuple(value)
    raise InputError(
        "a shape must be a list of integers or a string",
        argument="shape",
        got=value,
        expected="[6, 6] or '6x6'",
    )


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


def read_id(value: object, among: range) -> int | None:
    """Parse a collective id in `among`, given as an integer or a string; None stays None."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 30:
        value = int(value)
    if value in INTERPRETERS_IDS and type(value) is int:
        raise InputError(
            "a collective id must not be a number that JAX's interpreter of TPU kernels reserves",
            argument="collective_id",
            got=value,
            expected=f"a number below {INTERPRETERS_IDS.start} or at least {INTERPRETERS_IDS.stop}",
        )
    if value is None or (type(value) is int and value in among):
        return value
    raise InputError(
        "the id must be one that is reserved for this kind of operation",
        argument="collective_id",
        got=value,
        expected=f"a multiple of {among.step} from {among.start} to {among[-1]}",
    )


def read_text(key: str, value: object) -> str:
    """Return `value` if it is a string. Raise InputError for any other type."""
    if isinstance(value, str):
        return value
    raise InputError(
        f"{key} must be a string", argument=key, got=value, expected="a string in quotes"
    )


def read_switch(key: str, value: object) -> bool:
    """Return `value` if it is a boolean. Raise InputError for any other type."""
    if isinstance(value, bool):
        return value
    raise InputError(
        f"{key} must be true or false", argument=key, got=value, expected="true or false"
    )


def toml_value(value: object) -> str:
    """Return a value as TOML. Write a string that contains double quotes in single quotes."""
    if isinstance(value, str) and '"' in value and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


_SHORT_MESH = re.compile(r'<\[("[A-Za-z_]\w*"=\d+(, "[A-Za-z_]\w*"=\d+)*)\]>', re.ASCII)


def short_mesh(mesh: str) -> str:
    """Return `x=2,y=3` for `<["x"=2, "y"=3]>`, or the mesh unchanged if the short form cannot
    express it."""
    match = _SHORT_MESH.fullmatch(mesh)
    return match[1].replace('"', "").replace(" ", "") if match else mesh
