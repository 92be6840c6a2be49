"""Describe models, from a [[model]] table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from shardwright.codegen.registry import MODELLING
from shardwright.codegen.spec.description import check_name, listed_command, read_mesh, toml_value
from shardwright.codegen.spec.fields import read_backends
from shardwright.codegen.spec.toml_tables import check_keys, read_toml
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.given import read_text
from shardwright.ir.mesh import Mesh, as_integer
from shardwright.ir.model import MEMORY_LIMIT, Model
from shardwright.ir.rules import LayoutRule, Rules, check_stored
from shardwright.ir.stored import Stored

if TYPE_CHECKING:
    from shardwright.ir.model_plan import ModelPlan

REQUIRED = {
    "name": '"weights"',
    "mesh": '"tp=4"',
    "tensors": '{"layers.{0..79}.wq" = [8192, 8192]}, or "model.safetensors"',
    "source": '{"*.norm" = "_", "*" = "_[{tp}]"}',
    "target": '{"*" = "_"}',
}
"""Keys that a [[model]] table must have, each with an example."""

FIELDS = (*REQUIRED, "dtype", "target_mesh", "memory_limit", "backends")
"""The keys of a [[model]] table."""
SHARED = ("mesh", "target_mesh", "dtype", "memory_limit", "backends")
"""The keys of a model that can be set for several tables."""

Said: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a name or glob and a value as JSON."""


@dataclass(frozen=True)
class ModelDescription:
    """A named model: its tensors, the rules of both sides, and a limit on the bytes in flight per
    device.

    `tensors`, `source` and `target` are pairs of a name or glob and a value as JSON; `memory_limit`
    is in bytes.
    """

    kind: ClassVar[Literal["model"]] = "model"

    name: str
    mesh: str
    tensors: Said
    source: Said
    target: Said
    target_mesh: str | None = None
    memory_limit: int = MEMORY_LIMIT
    backends: tuple[str, ...] = MODELLING

    @staticmethod
    def of(plan: ModelPlan, name: str, backends: tuple[str, ...]) -> ModelDescription:
        """Return the description of a plan."""
        source, target = (str(each.mesh) for each in (plan.source, plan.target))
        tensors = {each: said._asdict() for each, said in plan.model.tensors.items()}
        return ModelDescription(
            check_name(name),
            source,
            _table(tensors, None, "tensors"),
            _rules(plan.source, "source"),
            _rules(plan.target, "target"),
            None if target == source else target,
            plan.memory_limit,
            backends,
        )

    def model(self) -> Model:
        return Model(_values(self.tensors))

    def rules(self) -> tuple[Rules, Rules]:
        """Return the source rules and the target rules."""
        target_mesh = self.mesh if self.target_mesh is None else self.target_mesh
        return Rules(self.mesh, _values(self.source)), Rules(target_mesh, _values(self.target))

    @property
    def devices(self) -> int:
        """The number of devices in all meshes of both sides."""
        meshes = {
            mesh
            for side in self.rules()
            for mesh in (side.mesh, *(rule.mesh for rule in side.rules))
            if mesh is not None
        }
        return len({device for mesh in meshes for device in mesh.device_ids})

    @property
    def supported(self) -> tuple[str, ...]:
        """The backends whose support modules the model's modules import."""
        return self.backends

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a [[model]] table, omitting fields that are None."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found |= {key: _values(found[key]) for key in ("tensors", "source", "target")}
        found["backends"] = list(self.backends)
        return {key: value for key, value in found.items() if value is not None}

    def lines(self) -> tuple[str, ...]:
        """Return the fields as lines of TOML."""
        return tuple(f"{key} = {_inline(value)}" for key, value in self.to_dict().items())

    def command(self) -> str:
        """Return the command line that emits this bundle again."""
        return listed_command(self.name)


def _values(said: Said) -> dict[str, Any]:
    return {key: json.loads(value) for key, value in said}


def _inline(value: object) -> str:
    if not isinstance(value, dict):
        return str(value).lower() if isinstance(value, bool) else toml_value(value)
    keys = (key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key) for key in value)
    pairs = zip(keys, map(_inline, value.values()), strict=True)
    return "{" + ", ".join(f"{key} = {each}" for key, each in pairs) + "}"


def describe_model(given: Mapping[str, Any], home: Path = Path()) -> ModelDescription:
    """Return the description for a user's fields; file paths are relative to `home`.

    An error names the field in `argument`.
    """
    check_keys(given, FIELDS, REQUIRED)
    meshes: list[Mesh] = [read_mesh("mesh", given["mesh"])]
    meshes.append(read_mesh("target_mesh", given.get("target_mesh", given["mesh"])))
    tensors = _tensors(given["tensors"], given.get("dtype"), home)
    rules: list[Said] = []
    for number, (key, mesh) in enumerate((("source", "mesh"), ("target", "target_mesh"))):
        side = _side(key, given[key], home)
        if isinstance(side, Stored):
            try:
                check_stored(side, Model(_values(tensors)), given[key])
            except InputError as error:
                raise _within(error, key) from None
            if mesh not in given:
                meshes[number] = side.mesh
            elif meshes[number].axes != side.mesh.axes:
                raise InputError(
                    f"the {mesh} must have the same axes and sizes as the mesh in {given[key]}",
                    argument=mesh,
                    got=meshes[number],
                    expected=f"{side.mesh}, with any device_ids"
                    + (", or no target_mesh" if mesh == "target_mesh" else ""),
                )
            side = dict(side.buffers)
        rules.append(_rules(_ruled(meshes[number], side, key), key))
    limit = as_integer(given.get("memory_limit", MEMORY_LIMIT))
    if limit is None or limit < 1:
        raise InputError(
            "memory_limit must be a number of bytes", argument="memory_limit",
            got=given["memory_limit"], expected="1 or more, for example 1073741824",
        )  # fmt: skip
    backends = read_backends(given.get("backends", MODELLING))
    for each in backends:
        if each not in MODELLING:
            raise InputError(
                "the backend cannot emit models", argument="backends", got=each,
                expected=one_of(MODELLING),
            )  # fmt: skip
    source, target = map(str, meshes)
    return ModelDescription(
        check_name(read_text("name", given["name"])),
        source,
        tensors,
        rules[0],
        rules[1],
        None if target == source else target,
        limit,
        backends,
    )


def _tensors(given: object, dtype: object, home: Path) -> Said:
    if isinstance(given, str):
        return _read(home / given, dtype)
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            "the tensors of a model must be a table of shapes, or a file",
            argument="tensors",
            got=given,
            expected='{"layers.{0..79}.wq" = [8192, 8192]}, or "model.safetensors"',
        )
    return _table(given, dtype, "tensors")


def _read(path: Path, dtype: object) -> Said:
    if path.suffix != ".toml":
        model = _named("tensors", lambda: Model.from_safetensors(path))
        return _table({name: each._asdict() for name, each in model.tensors.items()}, None, "")
    values = read_toml(path).values
    if not isinstance(values.get("tensors"), Mapping) or {*values} - {"tensors", "dtype"}:
        raise InputError(
            "a file of tensors must have a [tensors] table of shapes and, if needed, a dtype",
            argument="tensors",
            got=f"{path} with {', '.join(values) or 'nothing'}",
            expected='dtype = "bfloat16", and [tensors]',
        )
    return _table(values["tensors"], values.get("dtype", dtype), "tensors")


def _table(given: Mapping[str, Any], dtype: object, argument: str) -> Said:
    found = []
    for text, each in given.items():
        alone = _named(argument, partial(Model, {text: each}, dtype))
        said = next(iter(alone.tensors.values()))
        found.append((text, json.dumps({"shape": list(said.shape), "dtype": said.dtype})))
    return tuple(found)


def _named(argument: str, make: Callable[[], Model]) -> Model:
    """Return the model that `make` returns. If it raises an InputError, name the argument in the
    error."""
    try:
        return make()
    except InputError as error:
        raise _within(error, argument) from None


def _side(key: str, given: object, home: Path) -> Mapping[str, Any] | Stored:
    """Return the rules of a side, given as a table or as one layout for all tensors, or the stored
    layout in a file written by `learn`."""
    if isinstance(given, str):
        return Stored.read(home / given) if given.endswith(".toml") else {"*": given}
    if isinstance(given, Mapping) and given:
        return given
    raise InputError(
        "a side must be a table of rules, a layout, or a file of a stored layout",
        argument=key,
        got=given,
        expected=f'{key} = {{"*.norm" = "_", "*" = "_[{{tp}}]"}}',
    )


def _ruled(mesh: Mesh, given: Mapping[str, Any], argument: str) -> Rules:
    try:
        return Rules(mesh, given)
    except InputError as error:
        raise _within(error, argument) from None


def _within(error: InputError, argument: str) -> InputError:
    """Return an error about a value inside a table as an error about the table's key."""
    return InputError(
        f"{error.argument}: {error.rule}" if error.argument else error.rule,
        argument=argument,
        got=error.got,
        expected=error.expected,
        text=error.text,
        span=error.span,
    )


def of_key(error: InputError) -> InputError:
    """Return an error about a rule or buffer as an error about its side, a key of the table. Other
    errors are unchanged.
    """
    key, _, rest = (error.argument or "").partition(", ")
    return _within(error.named(rest), key) if rest and key in FIELDS else error


def _rules(side: Rules, argument: str) -> Said:
    return tuple((rule.glob.text, json.dumps(_rule(rule, argument))) for rule in side.rules)


def _rule(rule: LayoutRule, argument: str) -> object:
    try:
        layout = str(rule.layout if rule.read is None else rule.read)
        _ = rule.tensor
    except InputError as error:
        raise _within(error, argument) from None
    more: dict[str, object] = {}
    if rule.mesh is not None:
        more["mesh"] = str(rule.mesh)
    if rule.at:
        more["at"] = {axis: list(at) if isinstance(at, tuple) else at for axis, at in rule.at}
    if rule.also:
        more["also"] = True
    return {"layout": layout, **more} if more else layout
