"""Describe programs, from a [[program]] table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from shardwright.codegen.hardware.presets import is_gpus, topology_of
from shardwright.codegen.registry import OVERLAPPING
from shardwright.codegen.spec.description import check_name, read_mesh, toml_value
from shardwright.codegen.spec.fields import read_topology
from shardwright.codegen.spec.toml_tables import check_keys
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.given import read_text

REQUIRED = {
    "name": '"step"',
    "mesh": '"data=2,model=4"',
    "function": '"train:step"',
    "arguments": '"train:arguments"',
}
"""The keys that a [[program]] table must have, each with an example."""

FIELDS = (
    *(*REQUIRED, "in_shardings", "out_shardings", "mode", "topology", "budget"),
    *("gather", "memory_limit", "kernels"),
)
"""The keys of a [[program]] table."""
SHARED = ("mesh", "mode", "topology", "budget", "gather", "memory_limit", "kernels")
"""The keys of a program that can be set for several tables."""
UNITS = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}
CHOICES = {
    "mode": (("as_shardy", "cheapest"), "unknown mode"),
    "gather": (
        ("keep", "regather"),
        "unknown choice for gathered values",
    ),
    "sub_axes_at_edges": (
        ("allow", "gather"),
        "unknown choice for sub-axes of arguments and results",
    ),
}
"""For each partitioning option with fixed choices: the choices, and the rule that an error
states."""
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class ProgramDescription:
    """A named program and its partitioning options.

    `function`, `arguments` and, unless given as text, the shardings name objects in a user's
    module: `train:step` is `step` of `train`. `arguments` are avals, or a function that returns
    them. `topology`: the hardware whose communication times are predicted. `budget`: the maximum
    bytes that a device may receive. `gather`, `memory_limit`, `kernels`: as in `partition`. `home`:
    the folder to import modules from, which is ignored when descriptions are compared.
    """

    kind: ClassVar[Literal["program"]] = "program"

    name: str
    mesh: str
    function: str
    arguments: str
    in_shardings: str | None = None
    out_shardings: str | None = None
    mode: str = "as_shardy"
    topology: str | None = None
    budget: int | None = None
    gather: str = "keep"
    memory_limit: int | None = None
    kernels: tuple[str, ...] = ()
    home: str = field(default=".", compare=False)

    @property
    def backends(self) -> tuple[str, ...]:
        """Always empty: a program's module is not tied to a backend."""
        return ()

    @property
    def supported(self) -> tuple[str, ...]:
        """Always empty: a program's module imports no support modules."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a [[program]] table, omitting default values."""
        given = ((each, getattr(self, each.name)) for each in fields(self) if each.compare)
        listed = (
            (each, list(value) if isinstance(value, tuple) else value)
            for each, value in given
            if value != each.default
        )
        return {each.name: value for each, value in listed}

    def lines(self) -> tuple[str, ...]:
        """Return the fields as lines of TOML."""
        return tuple(f"{key} = {toml_value(value)}" for key, value in self.to_dict().items())


def describe_program(given: Mapping[str, object], home: str = ".") -> ProgramDescription:
    """Return the description for a user's fields; errors name the field."""
    check_keys(given, FIELDS, REQUIRED)
    texts = {
        key: read_text(key, given[key])
        for key in ("function", "arguments", "in_shardings", "out_shardings")
        if key in given
    }
    for key in ("function", "arguments"):
        if REFERENCE.fullmatch(texts[key]) is None:
            raise InputError(
                "must be the name of an object in a module",
                argument=key,
                got=texts[key],
                expected="module:name, such as "
                f"train:{'step' if key == 'function' else 'arguments'}",
            )
    mode = read_text("mode", given.get("mode", "as_shardy"))
    gather = read_text("gather", given.get("gather", "keep"))
    for key, choice in (("mode", mode), ("gather", gather)):
        check_choice(key, choice)
    return ProgramDescription(
        check_name(read_text("name", given["name"])),
        str(read_mesh("mesh", given["mesh"])),
        texts["function"],
        texts["arguments"],
        texts.get("in_shardings"),
        texts.get("out_shardings"),
        mode,
        read_topology(given["topology"]) if "topology" in given else None,
        _bytes("budget", given.get("budget")),
        gather,
        _bytes("memory_limit", given.get("memory_limit")),
        check_kernels(given.get("kernels", ()), given.get("topology")),
        home,
    )


def check_choice(key: str, given: object) -> None:
    """Raise InputError unless the value of a key is one of its choices."""
    choices, rule = CHOICES[key]
    if given not in choices:
        raise InputError(rule, argument=key, got=given, expected=one_of(choices))


def check_kernels(given: object, topology: object) -> tuple[str, ...]:
    """Return the backends whose kernels a program may use. Raise InputError for a backend
    without such kernels, if there is no topology on which to compare them, and for a topology of
    GPUs."""
    listed = tuple(given) if isinstance(given, tuple | list) else (given,)
    if any(each not in OVERLAPPING for each in listed):
        raise InputError(
            "the backend has no kernels for programs",
            argument="kernels",
            got=", ".join(map(str, listed)),
            expected=" or ".join(f'("{name}",)' for name in OVERLAPPING),
        )
    if listed and topology is None:
        raise InputError(
            "kernels need a topology on which to compare them",
            argument="kernels",
            got="no topology",
            expected='a topology, for example "v5e:2x4"',
        )
    if listed and is_gpus(topology_of(str(topology))):
        raise InputError(
            "kernels of programs need a topology of TPUs",
            argument="kernels",
            got=f"{', '.join(listed)}, on {topology}",
            expected='a topology of TPUs, for example "v5e:2x4", or no kernels',
        )
    return listed


def _bytes(key: str, given: object) -> int | None:
    if given is None or (type(given) is int and given >= 0):
        return given
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)", given) if isinstance(given, str) else None
    if match is None:
        raise InputError(
            f"a {key.replace('_', ' ')} must be a number of bytes",
            argument=key,
            got=given,
            expected='an integer of at least 0, or a text such as "64MiB"',
        )
    return int(match[1]) << UNITS[match[2]]
