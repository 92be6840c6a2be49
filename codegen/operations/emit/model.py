"""The modules that move a model, given its plan. A data file next to them has the names and
devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.codegen import registry
from shardwright.codegen.operations.emit.package import BundlePackage
from shardwright.codegen.text.python_text import WIDTH, wrapped
from shardwright.codegen.text.support import version
from shardwright.codegen.text.templates import render
from shardwright.ir.errors import InputError

DATA_FILE = "model.json"
"""The file from which modules read names, devices and relays."""


@dataclass(frozen=True)
class ModelText:
    """The context of the template of a model's module."""

    title: str
    facts: tuple[str, ...]
    listed: tuple[str, ...]
    command: str
    backend: str
    support: str
    host: str
    data: str = DATA_FILE


def model_backends(backends: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return the backends of a model's modules, by default all that can emit models. Raises
    InputError for a backend that cannot."""
    able = [name for name in registry.NAMES if registry.backend(name).model_host]
    if backends is None:
        return tuple(able)
    asked = registry.listed(tuple(backends))
    for name in asked:
        if name not in able:
            raise InputError(
                f"{name} cannot emit models",
                argument="backends",
                got=name,
                expected=" or ".join(able),
            )
    return asked


def model_files(
    data: Mapping[str, Any], backends: Sequence[str], facts: Sequence[str], command: str
) -> dict[str, str]:
    """Return the text of every file in a model's folder except the review page. `facts`: lines
    about the transfers; `command`: the command that emits the files again."""
    title, *rest = facts
    found = {
        f"{backend}.py": render(
            "common/model.py.jinja",
            ModelText(
                title="\n".join(wrapped(f'"""{title}'))[3:],
                facts=tuple(rest),
                listed=tuple(_listed(data)),
                command=command,
                backend=backend,
                support=version(backend),
                host=registry.backend(backend).model_host,
            ),
        )
        for backend in backends
    }
    package = BundlePackage("model", True, tuple(backends))
    found["__init__.py"] = render("common/package.py.jinja", package)
    found[DATA_FILE] = _data_text(data)
    return found


def _listed(data: Mapping[str, Any]) -> Iterable[str]:
    counts = [0] * len(data["kinds"])
    for kind, *_ in data["members"]:
        counts[kind] += 1
    for kind, count in zip(data["kinds"], counts, strict=True):
        shapes = ", ".join("x".join(map(str, shape)) or "()" for shape in kind["tensors"])
        sides = (", ".join(layout for layout, *_ in kind[side]) for side in ("source", "target"))
        before, after = sides
        yield from wrapped(f"{count} of {kind['dtype']} {shapes}: {before} to {after}", WIDTH - 4)


def _data_text(data: Mapping[str, Any]) -> str:
    lines = []
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], list | dict):
            inner = ",\n".join(json.dumps(each, separators=(",", ":")) for each in value)
            lines.append(f"{json.dumps(key)}: [\n{inner}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
