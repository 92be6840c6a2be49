"""Models: logical tensors by name, from a table, a state dict, a pytree or safetensors headers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shardwright.ir.drawn import Drawn
from shardwright.ir.dtypes import PACKED, dtype_of, itemsize
from shardwright.ir.errors import InputError, in_a_line, known_arguments
from shardwright.ir.given import shape_of
from shardwright.ir.globs import Glob

MEMORY_LIMIT = 1 << 30
"""The default limit on the bytes in flight per device while a model moves."""

_MOST_HEADER = 100_000_000
"""The maximum size in bytes of a safetensors header, the limit of the safetensors library."""


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as `1 kind` or `1,025 tensors`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


class Logical(NamedTuple):
    """A logical tensor: its shape in elements, and its element type."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """The number of bytes of the whole tensor."""
        return math.prod(self.shape) * itemsize(self.dtype)


@dataclass(frozen=True, init=False, repr=False)
class Model(Drawn):
    """The logical tensors of a model, by name."""

    tensors: dict[str, Logical]

    @known_arguments
    def __init__(self, tensors: Mapping[str, object], dtype: object = None) -> None:
        """Read the tensors of a model.

        `tensors` maps each name to a shape, to a dict of `shape` and `dtype`, or to any object with
        these attributes, such as an array or a meta tensor. A name with `{0..79}` or `{q,k}`
        represents several tensors. `dtype`: the dtype of tensors that do not state a dtype. Raises
        InputError if there are no tensors, if a name is repeated, and for a tensor without a shape
        or dtype.
        """
        found: dict[str, Logical] = {}
        for text, given in tensors.items():
            said = _logical(text, given, dtype)
            for name in Glob(text).names() if "{" in text else (text,):
                if name in found:
                    raise InputError(
                        "two keys must not give the same tensor",
                        argument=text,
                        got=f"{name} again",
                        expected="each name in only one key",
                    )
                found[name] = said
        if not found:
            raise InputError(
                "a model must have at least one tensor",
                argument="tensors",
                expected='{"layers.0.wq": (64, 64)}',
            )
        object.__setattr__(self, "tensors", found)

    def __repr__(self) -> str:
        return f"<Model: {counted(len(self.tensors), 'tensor')}, {self.bytes:,} bytes>"

    @staticmethod
    def from_state_dict(state: Mapping[str, Any]) -> Model:
        """Return the model with the tensors of a torch state dict, which may be meta tensors or
        DTensors."""
        return Model(flattened(state))

    @staticmethod
    def from_pytree(tree: Any) -> Model:
        """Return the model with the leaves of nested dicts, lists and tuples. Leaves are arrays or
        other objects with a shape and dtype. Their names are the keys on their path, joined by
        dots."""
        return Model(flattened(tree))

    @staticmethod
    def from_safetensors(paths: str | Path | Iterable[str | Path]) -> Model:
        """Return the model with the tensors of safetensors files. Only the headers are read.

        `paths`: files, or folders whose safetensors files are all read. Raises InputError for a
        file in a different format, and for a tensor that is in two files.
        """
        given = (paths,) if isinstance(paths, str | Path) else paths
        found: dict[str, object] = {}
        for path in (each for one in given for each in _files(Path(one))):
            for name, said in _header(path).items():
                if name != "__metadata__":
                    if name in found:
                        raise InputError(
                            "two files must not have the same tensor",
                            argument=str(path),
                            got=name,
                            expected="each tensor in only one file",
                        )
                    found[name] = said
        return Model(found)

    @property
    def bytes(self) -> int:
        """The number of bytes of all tensors together."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    def __hash__(self) -> int:
        return hash(tuple(self.tensors.items()))


def flattened(tree: Any) -> dict[str, Any]:
    """Return the leaves of nested dicts, lists and tuples by name. The name of a leaf consists of
    the keys on its path, joined by dots. Raise InputError if two leaves have the same name."""
    found: dict[str, Any] = {}
    for name, leaf in _leaves(tree, ""):
        if name in found:
            raise InputError(
                "two leaves of a tree must not have the same name (their keys, joined by dots)",
                got=name,
                expected="keys without dots",
            )
        found[name] = leaf
    return found


def _leaves(tree: Any, before: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        items: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, tuple) and (fields := _fields(tree)):
        items = zip(fields, tree, strict=True)
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    else:
        yield before, tree
        return
    for key, each in items:
        yield from _leaves(each, f"{before}.{key}" if before else str(key))


def _fields(given: tuple[Any, ...]) -> tuple[str, ...]:
    return getattr(given, "_fields", ())


def nested(flat: Mapping[str, Any], like: Any) -> Any:
    """Return a tree with the named leaves. This is the inverse of `flattened`.

    The tree has the structure of `like` if the leaves of `like` have the same names. Otherwise it
    is a dict, nested at the dots of the names unless `like` is flat.
    """
    names = flattened(like)
    if {*names} == {*flat}:
        return _rebuilt(flat, like, "")
    if like is None or (isinstance(like, Mapping) and {*like} == {*names}):
        return dict(flat)
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *way, last = name.split(".")
        inner = tree
        for key in way:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return tree


def _rebuilt(flat: Mapping[str, Any], like: Any, before: str) -> Any:
    def under(key: object) -> str:
        return f"{before}.{key}" if before else str(key)

    if isinstance(like, Mapping):
        return {key: _rebuilt(flat, each, under(key)) for key, each in like.items()}
    if isinstance(like, tuple) and (fields := _fields(like)):
        pairs = zip(fields, like, strict=True)
        return type(like)(*(_rebuilt(flat, each, under(key)) for key, each in pairs))
    if isinstance(like, list | tuple):
        return type(like)(_rebuilt(flat, each, under(key)) for key, each in enumerate(like))
    return flat[before]


def _logical(name: str, given: Any, dtype: object) -> Logical:
    """Read a tensor given as a shape, a dict, or an object with a shape and dtype. Raise
    InputError, naming the tensor, for anything else."""
    shape, own = given, None
    if isinstance(given, Mapping):
        if {*given} - {"shape", "dtype", "data_offsets"} or "shape" not in given:
            raise InputError(
                "a tensor must be given as a shape, or as a table with its shape and, optionally, "
                "dtype",
                argument=name,
                got=in_a_line(dict(given)),
                expected='{shape = [64, 64], dtype = "float32"}',
            )
        shape, own = given["shape"], given.get("dtype")
    elif not isinstance(given, str | list | tuple):
        shape, own = getattr(given, "shape", None), getattr(given, "dtype", None)
        if shape is None or own is None:
            raise InputError(
                "a tensor must have a shape and a dtype",
                argument=name,
                got=in_a_line(given),
                expected="an array, a tensor or its shape",
            )
        shape = tuple(shape)
    said = dtype if own is None else own
    if said is None:
        raise InputError("a tensor must have a dtype", argument=name, expected='dtype="bfloat16"')
    if _is_packed(said):
        raise InputError(
            "the dtype must fill whole bytes; two elements of this dtype share a byte",
            argument=name,
            got=in_a_line(said),
            expected="uint8, with half as many columns",
        )
    try:
        return Logical(shape_of(shape), dtype_of(said))
    except InputError as error:
        raise error.named(f"{name}, {error.argument}" if error.argument else name) from None


def _is_packed(dtype: object) -> bool:
    try:
        return dtype_of(dtype, PACKED) in PACKED
    except InputError:
        return False


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.safetensors"))
    if not found:
        raise InputError(
            "the folder has no safetensors files",
            argument=str(path),
            expected="at least one *.safetensors file",
        )
    return found


def _header(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: JSON, after 8 bytes with its length."""
    reason = "no JSON header"
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            found = json.loads(file.read(length)) if length <= _MOST_HEADER else None
        if isinstance(found, dict):
            return found
    except OSError as error:
        reason = error.strerror or str(error)
    except (struct.error, ValueError):
        pass
    raise InputError(
        "the file must be in the safetensors format",
        argument=str(path),
        got=reason,
        expected="the length of the header in 8 bytes, then the header as JSON",
    )
