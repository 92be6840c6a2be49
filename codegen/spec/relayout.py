"""Describe relayouts, from a [[relayout]] table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from shardwright.codegen.registry import NAMES
from shardwright.codegen.spec.description import check_name, listed_command, read_mesh, toml_value
from shardwright.codegen.spec.fields import read_backends, read_switch
from shardwright.codegen.spec.toml_tables import check_keys
from shardwright.ir.errors import InputError
from shardwright.ir.given import read_text
from shardwright.ir.mesh import Mesh
from shardwright.ir.relayout import Relayout
from shardwright.ir.stored import Stored

REQUIRED = {
    "name": '"qkv"',
    "mesh": '"tp=4"',
    "dtype": '"bfloat16"',
    "tensors": "{q = [32, 16], k = [8, 16]}",
    "source": "{qkv = 'stack(0, q[{tp}], k[{tp}])'}",
    "target": "{q = '[{tp}]', k = '[{tp}]'}",
}
"""Keys that a [[relayout]] table must have, each with an example."""

FIELDS = (*REQUIRED, "target_mesh", "backends", "gradient")
"""The keys of a [[relayout]] table."""
SHARED = ("mesh", "target_mesh", "dtype", "backends", "gradient")
"""The keys of a relayout that can be set for several tables."""

Texts: TypeAlias = tuple[tuple[str, str], ...]
"""The layout of each buffer, by its name."""


@dataclass(frozen=True)
class RelayoutDescription:
    """A named relayout: logical tensors of one dtype, and the buffer layouts on both sides.
    `gradient`: whether modules have derivatives."""

    kind: ClassVar[Literal["relayout"]] = "relayout"

    name: str
    mesh: str
    dtype: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    source: Texts
    target: Texts
    target_mesh: str | None = None
    backends: tuple[str, ...] = NAMES
    gradient: bool = False

    @staticmethod
    def of(
        relayout: Relayout,
        name: str,
        backends: tuple[str, ...] = NAMES,
        *,
        gradient: bool = False,
    ) -> RelayoutDescription:
        """Return the description of a relayout. `describe_relayout` returns an equal description
        when given the fields of this one."""
        source, target = relayout.source, relayout.target
        return RelayoutDescription(
            check_name(name),
            str(source.mesh),
            source.dtype,
            tuple(source.tensors.items()),
            _texts(source),
            _texts(target),
            None if target.mesh == source.mesh else str(target.mesh),
            backends,
            gradient,
        )

    def relayout(self) -> Relayout:
        """Return the described relayout."""
        return _relayout(self.to_dict())

    @property
    def devices(self) -> int:
        """The number of distinct devices of both sides."""
        meshes = (self.mesh, self.target_mesh or self.mesh)
        return len({each for mesh in meshes for each in Mesh.parse(mesh).device_ids})

    @property
    def supported(self) -> tuple[str, ...]:
        """Always empty: each module is self-contained and imports no support modules."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a [[relayout]] table, omitting fields that are None or False."""
        found: dict[str, Any] = {"name": self.name, "mesh": self.mesh}
        found |= {} if self.target_mesh is None else {"target_mesh": self.target_mesh}
        return found | {
            "dtype": self.dtype,
            "tensors": {name: list(shape) for name, shape in self.tensors},
            "source": dict(self.source),
            "target": dict(self.target),
            "backends": list(self.backends),
            **({"gradient": True} if self.gradient else {}),
        }

    def lines(self) -> tuple[str, ...]:
        """Return the fields as lines of TOML."""
        return tuple(f"{key} = {_inline(value)}" for key, value in self.to_dict().items())

    def command(self) -> str:
        """Return the command line that emits this bundle again."""
        return listed_command(self.name)


def _texts(stored: Stored) -> Texts:
    return tuple((name, str(layout)) for name, layout in stored.buffers.items())


def _inline(value: object) -> str:
    if not isinstance(value, dict):
        return toml_value(value)
    keys = (key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key) for key in value)
    pairs = zip(keys, map(toml_value, value.values()), strict=True)
    return "{" + ", ".join(f"{key} = {each}" for key, each in pairs) + "}"


def describe_relayout(given: Mapping[str, object]) -> RelayoutDescription:
    """Return the description for a user's fields; errors name the field."""
    check_keys(given, FIELDS, REQUIRED)
    return RelayoutDescription.of(
        _relayout(given),
        read_text("name", given["name"]),
        read_backends(given.get("backends", NAMES)),
        gradient=read_switch("gradient", given.get("gradient", False)),
    )


def _relayout(given: Mapping[str, Any]) -> Relayout:
    mesh = read_mesh("mesh", given["mesh"])
    target_mesh = given.get("target_mesh")
    tensors = given["tensors"]
    if not isinstance(tensors, Mapping) or not tensors:
        raise InputError(
            "the tensors must be a table of shapes",
            argument="tensors",
            got=tensors,
            expected=f"tensors = {REQUIRED['tensors']}",
        )
    source, target = (
        _stored(side, on, tensors, given)
        for side, on in (
            ("source", mesh),
            ("target", mesh if target_mesh is None else read_mesh("target_mesh", target_mesh)),
        )
    )
    return Relayout(source, target)


def _stored(
    side: str, mesh: object, tensors: Mapping[str, Any], given: Mapping[str, Any]
) -> Stored:
    said = given[side]
    if isinstance(said, str):
        said = {"": said}
    if not isinstance(said, Mapping) or not said:
        raise InputError(
            "a side must be a layout, or a table of layouts by buffer",
            argument=side,
            got=said,
            expected=f"{side} = {REQUIRED['source']}",
        )
    layouts = {
        name: f"stack(0, {', '.join(map(str, each))})" if isinstance(each, list) else each
        for name, each in said.items()
    }
    try:
        return Stored(mesh, tensors, layouts, given["dtype"])
    except InputError as error:
        if error.argument in ("dtype", "mesh"):
            raise
        buffer = error.argument if error.argument in layouts else None
        raise InputError(
            error.rule if not buffer else f"buffer {buffer}: {error.rule}",
            argument=side if buffer or error.argument in ("", "layout", None) else "tensors",
            got=error.got,
            expected=error.expected,
            text=error.text,
            span=error.span,
        ) from None
