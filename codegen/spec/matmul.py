"""Descriptions of matmuls, read from [[matmul]] tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from shardwright.codegen.registry import MULTIPLYING
from shardwright.codegen.spec.description import (
    BUNDLE_IDS,
    Description,
    check_name,
    describe,
    listed_command,
    read_id,
    read_mesh,
    read_shape,
    toml_value,
)
from shardwright.codegen.spec.features import read_features
from shardwright.codegen.spec.fields import read_backends, read_switch, read_topology
from shardwright.codegen.spec.model import ModelDescription, describe_model
from shardwright.codegen.spec.program import ProgramDescription, describe_program
from shardwright.codegen.spec.relayout import RelayoutDescription, describe_relayout
from shardwright.codegen.spec.toml_tables import check_keys
from shardwright.ir.errors import InputError
from shardwright.ir.given import read_text
from shardwright.ir.matmul import Matmul

OPERAND = ("shape", "sharding")
REQUIRED = {
    "name": '"up"',
    "mesh": '"x=2,y=4"',
    "dtype": '"bfloat16"',
    "lhs": """{shape = [8, 16], sharding = '[{"x"}, {}]'}""",
    "rhs": """{shape = [16, 32], sharding = '[{}, {"y"}]'}""",
    "out": """'[{"x"}, {"y"}]'""",
}
"""Keys that a [[matmul]] table must have, each with an example."""


@dataclass(frozen=True)
class MatmulDescription:
    """A named matmul and its emission options. Strings are canonical: equal descriptions have equal
    strings.

    `lhs_shape` and `lhs` are the shape and sharding of an operand, `out` is the sharding of the
    result. The planner optimizes for `topology`. `loop` is the user's choice ("auto" stays "auto").
    `gradient`: whether modules have derivatives. `single_file`: whether each module contains its
    support modules. `collective_id`: id of TPU kernels; None derives it from the other fields.
    """

    kind: ClassVar[Literal["matmul"]] = "matmul"

    name: str
    mesh: str
    dtype: str
    lhs_shape: tuple[int, ...]
    lhs: str
    rhs_shape: tuple[int, ...]
    rhs: str
    out: str
    out_dtype: str
    backends: tuple[str, ...] = MULTIPLYING
    topology: str | None = None
    loop: str = "auto"
    gradient: bool = False
    single_file: bool = False
    collective_id: int | None = None

    @staticmethod
    def of(
        matmul: Matmul,
        name: str,
        backends: tuple[str, ...] = MULTIPLYING,
        topology: str | None = None,
        loop: str = "auto",
        *,
        gradient: bool = False,
        single_file: bool = False,
        collective_id: int | None = None,
    ) -> MatmulDescription:
        """Return the description of a matmul. `describe_matmul` returns an equal one for any text
        form of the matmul."""
        return MatmulDescription(
            name=check_name(name),
            mesh=str(matmul.mesh),
            dtype=matmul.dtype,
            lhs_shape=matmul.lhs.shape,
            lhs=str(matmul.lhs.sharding),
            rhs_shape=matmul.rhs.shape,
            rhs=str(matmul.rhs.sharding),
            out=str(matmul.out),
            out_dtype=matmul.out_dtype,
            backends=backends,
            topology=read_topology(topology),
            loop=loop,
            gradient=gradient,
            single_file=single_file,
            collective_id=read_id(collective_id, BUNDLE_IDS),
        )

    def matmul(self) -> Matmul:
        """Return the described matmul."""
        lhs, rhs = (self.lhs_shape, self.lhs), (self.rhs_shape, self.rhs)
        return Matmul(self.dtype, lhs, rhs, self.out, self.out_dtype, mesh=self.mesh)

    @property
    def supported(self) -> tuple[str, ...]:
        """The backends whose modules import support modules."""
        return () if self.single_file else self.backends

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a [[matmul]] table, omitting default values."""
        found: dict[str, Any] = {
            "name": self.name,
            "mesh": self.mesh,
            "dtype": self.dtype,
            "lhs": {"shape": list(self.lhs_shape), "sharding": self.lhs},
            "rhs": {"shape": list(self.rhs_shape), "sharding": self.rhs},
            "out": self.out,
        }
        found |= {} if self.out_dtype == self.dtype else {"out_dtype": self.out_dtype}
        for field in dataclasses.fields(self)[9:]:
            value = getattr(self, field.name)
            if value != field.default:
                found[field.name] = list(value) if isinstance(value, tuple) else value
        return found

    def lines(self) -> tuple[str, ...]:
        """Return the fields as lines of TOML."""
        return tuple(f"{key} = {_inline(value)}" for key, value in self.to_dict().items())

    def command(self) -> str:
        """Return the command line that emits this bundle again."""
        return listed_command(self.name)


FIELDS = (
    *("name", "mesh", "dtype", "lhs", "rhs", "out", "out_dtype", "backends", "topology", "loop"),
    *("gradient", "single_file", "features", "collective_id"),
)
"""The keys of a [[matmul]] table."""

OWN = ("name", "lhs", "rhs", "out", "backends", "collective_id")
SHARED = tuple(key for key in FIELDS if key not in OWN)
"""The keys of a matmul that can be set for several tables. `backends` is not among them, because
few backends can multiply."""

Operation = (
    Description | MatmulDescription | ProgramDescription | RelayoutDescription | ModelDescription
)
"""The type of a description of any operation that has a bundle."""


def _inline(value: object) -> str:
    if not isinstance(value, dict):
        return toml_value(value)
    return "{" + ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items()) + "}"


def describe_operation(given: Mapping[str, object]) -> Operation:
    """Return the description for the fields in a manifest."""
    if "function" in given:
        return describe_program(given)
    if "tensors" in given:
        return describe_model(given) if "memory_limit" in given else describe_relayout(given)
    return describe_matmul(given) if "lhs" in given else describe(given)


def describe_matmul(given: Mapping[str, object]) -> MatmulDescription:
    """Return the description for a user's fields: strings, or lists as in TOML.

    An error names the field in `argument`; callers add its location.
    """
    check_keys(given, FIELDS, REQUIRED)
    mesh = read_mesh("mesh", given["mesh"])
    texts = {key: read_text(key, given[key]) for key in ("name", "dtype", "out")}
    out_dtype = given.get("out_dtype")
    matmul = Matmul(
        texts["dtype"],
        _operand("lhs", given["lhs"]),
        _operand("rhs", given["rhs"]),
        texts["out"],
        None if out_dtype is None else read_text("out_dtype", out_dtype),
        mesh=mesh,
    )
    return MatmulDescription.of(
        matmul,
        check_name(texts["name"]),
        read_backends(given.get("backends", MULTIPLYING)),
        read_topology(given.get("topology")),
        read_text("loop", given.get("loop", "auto")),
        gradient=read_switch("gradient", given.get("gradient", False))
        or "gradient" in read_features(given.get("features", ())),
        single_file=read_switch("single_file", given.get("single_file", False)),
        collective_id=read_id(given.get("collective_id"), BUNDLE_IDS),
    )


def _operand(side: str, value: object) -> tuple[tuple[int, ...], str]:
    if not isinstance(value, Mapping) or sorted(value) != sorted(OPERAND):
        raise InputError(
            f"{side} must be a table with a shape and a sharding",
            argument=side,
            got=value if not isinstance(value, Mapping) else f"keys {', '.join(value) or 'none'}",
            expected=f"{side} = {REQUIRED[side]}",
        )
    try:
        return read_shape(value["shape"]), read_text("sharding", value["sharding"])
    except InputError as error:
        raise error.named(side) from None
