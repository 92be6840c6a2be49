"""Descriptions: a user's reshard and emission options, in canonical text.

The command line, TOML files, the manifest and the regeneration command in an emitted module all use
the same description. Its fields are the command line's flags with underscores.
"""

from __future__ import annotations

import dataclasses
import json
import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from shardwright.codegen.registry import DEFAULT_BACKENDS
from shardwright.codegen.spec.features import read_features
from shardwright.codegen.spec.fields import (
    in_order,
    read_backends,
    read_limit,
    read_switch,
    read_topology,
)
from shardwright.codegen.spec.toml_tables import check_keys
from shardwright.ir.errors import InputError
from shardwright.ir.given import read_text
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.text.parse import parse_mesh, parse_shape

LONGEST_COMMAND = 2000

BUNDLE_IDS = range(0, 7 * 2**12, 4)
"""The possible first collective ids of bundles. Larger ids belong to groups. JAX's interpreter
of TPU kernels stores an id as a signed 16-bit integer."""


# Names of modules that bundles import directly or indirectly: a bundle folder of the same name
# would shadow the module. Python's own tests are left out, because they are never imported.
IMPORTED = (sys.stdlib_module_names - {"test"}) | {
    *("jax", "jaxlib", "ml_dtypes", "numpy", "shardwright", "torch", "triton")
}

OF_THE_ROOT = "MODULES", "_support", "load"
"""Names already used in the package of all bundles."""


@dataclass(frozen=True)
class Description:
    """A named reshard and its emission options. Strings are canonical: equal descriptions have
    equal strings.

    `strategy` is the user's choice ("auto" stays "auto"); the planner resolves "auto" for
    `topology` and `memory_limit` (in bytes). `gradient`: whether modules have derivatives, for
    backends where this is optional. `single_file`: whether each module contains its support
    modules. `features`: optional parts of modules other than gradients. `collective_id`: id of TPU
    kernels; None derives it from the other fields.
    """

    kind: ClassVar[Literal["reshard"]] = "reshard"

    name: str
    mesh: str
    shape: tuple[int, ...]
    dtype: str
    source: str
    target: str
    target_mesh: str | None = None
    source_split: str = "flat"
    target_split: str = "flat"
    backends: tuple[str, ...] = DEFAULT_BACKENDS
    strategy: str = "auto"
    topology: str | None = None
    memory_limit: int | None = None
    gradient: bool = False
    single_file: bool = False
    features: tuple[str, ...] = ()
    collective_id: int | None = None

    @staticmethod
    def of(
        reshard: Reshard,
        name: str,
        backends: tuple[str, ...] = DEFAULT_BACKENDS,
        strategy: str = "auto",
        topology: str | None = None,
        memory_limit: int | None = None,
        *,
        gradient: bool = False,
        single_file: bool = False,
        features: tuple[str, ...] = (),
        collective_id: int | None = None,
    ) -> Description:
        """Return the description of a reshard; `describe` returns an equal one for its fields."""
        source, target = reshard.source, reshard.target
        return Description(
            name=check_name(name),
            mesh=str(source.mesh),
            shape=reshard.shape,
            dtype=reshard.dtype,
            source=str(source),
            target=str(target),
            target_mesh=None if target.mesh == source.mesh else str(target.mesh),
            source_split=reshard.source_split,
            target_split=reshard.target_split,
            backends=in_order(backends),
            strategy=strategy,
            topology=read_topology(topology),
            memory_limit=memory_limit,
            gradient=gradient,
            single_file=single_file,
            features=features,
            collective_id=read_id(collective_id, BUNDLE_IDS),
        )

    def reshard(self) -> Reshard:
        """Return the described reshard."""
        return _reshard(self.to_dict())

    @property
    def moved(self) -> tuple[object, ...]:
        """The canonical texts that identify the reshard."""
        return (
            *(self.mesh, self.target_mesh, self.shape, self.dtype),
            *(self.source, self.target, self.source_split, self.target_split),
        )

    @property
    def supported(self) -> tuple[str, ...]:
        """The backends whose modules import support modules."""
        return () if self.single_file else self.backends

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, without fields that are None or False and without empty
        features; `describe` reads them."""
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in fields
            if value is not None and value is not False and (key != "features" or value)
        }

    def lines(self) -> tuple[str, ...]:
        """Return the fields as lines of TOML."""
        return tuple(f"{key} = {toml_value(value)}" for key, value in self.to_dict().items())

    def command(self, out: str | None = None) -> str:
        """Return the command that emits this bundle again, quoted for a POSIX shell, into folder
        `out`.

        If that command would be too long for a shell or a reader, return one that reads the
        description from the folder's manifest.
        """
        where = [] if out is None else ["-o", out]
        line = shlex.join(["shardwright", "emit", *self._flags(), *where])
        return line if len(line) <= LONGEST_COMMAND else listed_command(self.name)

    def _flags(self) -> list[str]:
        target_mesh = None if self.target_mesh is None else short_mesh(self.target_mesh)
        texts = {"mesh": short_mesh(self.mesh), "target_mesh": target_mesh}
        texts |= {"shape": "x".join(map(str, self.shape)) or "()"}
        texts |= {"backends": ",".join(self.backends), "memory_limit": str(self.memory_limit)}
        texts |= {"collective_id": str(self.collective_id)}
        fields = [*dataclasses.fields(self)[1:], dataclasses.fields(self)[0]]
        words: list[str] = []
        for field in fields:
            value = getattr(self, field.name)
            if field.name == "features":
                words += [word for name in value for word in ("--feature", name)]
            elif value != field.default:
                words.append("--" + field.name.replace("_", "-"))
                words += [] if value is True else [texts.get(field.name) or value]
        return words


FIELDS = tuple(field.name for field in dataclasses.fields(Description))
SHARED = FIELDS[1:-1]
"""The keys that can be set for several reshards: all but the name and the collective id."""
REQUIRED = {
    "mesh": '"x=2,y=3"',
    "shape": "[6, 6]",
    "dtype": '"float32"',
    "source": """'[{"x"}, {"y"}]'""",
    "target": """'[{"y"}, {"x"}]'""",
}
"""The keys that a reshard must have besides its name, each with an example in TOML."""

_TEXTS = ("source", "target", "dtype", "source_split", "target_split")


def describe(given: Mapping[str, object]) -> Description:
    """Return the description for a user's fields: strings, or lists and booleans as in TOML.

    An error names the field in `argument`; callers add its location.
    """
    check_keys(given, FIELDS, {"name": '"transpose"', **REQUIRED})
    features, reshard = read_features(given.get("features", ())), _reshard(given)
    gradient = read_switch("gradient", given.get("gradient", False))
    return Description.of(
        reshard,
        check_name(read_text("name", given["name"])),
        read_backends(given.get("backends", DEFAULT_BACKENDS)),
        read_text("strategy", given.get("strategy", "auto")),
        read_topology(given.get("topology")),
        read_limit(given.get("memory_limit")),
        gradient=gradient or "gradient" in features,
        single_file=read_switch("single_file", given.get("single_file", False)),
        features=kept_features(features, reshard),
        collective_id=read_id(given.get("collective_id"), BUNDLE_IDS),
    )


def kept_features(features: tuple[str, ...], reshard: Reshard) -> tuple[str, ...]:
    """Return the features that a description stores. Drop `gradient`, which is a separate field.
    Add `dtensor` if DTensor placements can express the reshard."""
    placed = ("dtensor",) if reshard.placed else ()
    return tuple(sorted({*features, *placed} - {"gradient"}))


IN_PARENT = "in the parent folder"
"""The comment on a command that reads the manifest of a folder."""


def listed_command(name: str) -> str:
    """Return the command that emits a bundle again from the manifest in its parent folder."""
    command = shlex.join(["shardwright", "emit", "manifest.json", "--name", name])
    return with_comment(command, IN_PARENT)


def with_comment(command: str, said: str) -> str:
    """Append a comment to a command line, after any comment that it already has."""
    return f"{command}{'; ' if '  # ' in command else '  # '}{said}"


def moved_by(reshard: Reshard) -> tuple[object, ...]:
    """Return the canonical texts that identify a reshard."""
    source, target = reshard.source, reshard.target
    other = None if target.mesh == source.mesh else str(target.mesh)
    return (
        *(str(source.mesh), other, reshard.shape, reshard.dtype),
        *(str(source), str(target), reshard.source_split, reshard.target_split),
    )


def check_name(name: str) -> str:
    """Return the name of a bundle. Raises InputError if it cannot be imported or is reserved."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(
            "the name of a bundle must be a Python identifier",
            argument="name",
            got=name,
            expected="letters, digits and underscores, not starting with a digit; not a keyword",
        )
    if name in IMPORTED or name.startswith("__"):
        raise InputError(
            "the name must not hide a module that bundles import",
            argument="name",
            got=name,
            expected="a name other than those of standard modules and packages that bundles import",
        )
    if name in OF_THE_ROOT:
        raise InputError(
            "the name is reserved for a file in the folder of bundles",
            argument="name",
            got=name,
            expected=f"a name other than {', '.join(OF_THE_ROOT)}",
        )
    return name


def _reshard(given: Mapping[str, object]) -> Reshard:
    mesh = read_mesh("mesh", given["mesh"])
    target_mesh = given.get("target_mesh")
    other = None if target_mesh is None else read_mesh("target_mesh", target_mesh)
    texts = {key: read_text(key, given[key]) for key in _TEXTS if key in given}
    shape = read_shape(given["shape"])
    try:
        return Reshard(
            shape=shape,
            dtype=texts["dtype"],
            source=texts["source"],
            target=texts["target"],
            source_split=texts.get("source_split"),
            target_split=texts.get("target_split"),
            mesh=mesh,
            target_mesh=other,
        )
    except InputError as error:
        raise _underlined(error, texts) from None


def _underlined(error: InputError, texts: Mapping[str, str]) -> InputError:
    """Return an error with all of its argument underlined, unless a part is underlined already."""
    text = texts.get(error.argument or "")
    if error.text is not None or not text:
        return error
    return error.within(text, (0, len(text)))


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
