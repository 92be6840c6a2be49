"""Learn the layouts in a file again, with the loader that the file names."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardwright.codegen.learn.compare import Comparison, compare
from shardwright.codegen.learn.learn import Learned, learn
from shardwright.codegen.learn.logical import LogicalTensor
from shardwright.codegen.spec.references import loader, told
from shardwright.ir.stored import Stored


@dataclass(frozen=True)
class LearnedAgain:
    """The comparison of a loader's current layouts with the layouts stored in a file."""

    path: Path
    comparison: Comparison
    versions: tuple[str, ...]  # packages whose version has changed
    findings: tuple[str, ...]  # descriptions of ranges without a layout that are not in the file

    @property
    def same(self) -> bool:
        """Whether the loader still stores its buffers as the file states."""
        return self.comparison.same and not self.findings

    def __str__(self) -> str:
        moved = [] if self.comparison.same else str(self.comparison).splitlines()
        lines = [*moved, *self.findings] or ["as its loader stores now"]
        return "\n".join(f"{self.path}: {line}" for line in [*lines, *self.versions])


def is_learned(path: Path) -> bool:
    """Return whether a file is a stored layout that `learn` wrote, with the name of its loader."""
    try:
        return "learned" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def like_of(path: Path) -> str:
    """Return the library of the tensors that a file's loader received; numpy unless stated."""
    return str(learned_table(path).get("like", "numpy"))


def learned_table(path: Path) -> dict[str, Any]:
    """Return the table `learned` of a file, empty if the file has none."""
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("learned", {})
    return table


def learn_again(path: Path, home: str = "") -> LearnedAgain:
    """Run the loader that a file names, and compare its layouts with the layouts in the file.

    `home`: the folder to search first for the loader's module. Raises InputError if the loader no
    longer exists.
    """
    stored, said = Stored.read(path), learned_table(path)
    load = loader(str(said.get("from")), f"{path}: learned.from", home)
    like = str(said.get("like", "numpy"))
    tensors = {
        name: LogicalTensor.made(shape, like, stored.dtype)
        for name, shape in stored.tensors.items()
    }
    others = {
        name: LogicalTensor.made(tuple(shape), like, stored.dtype)
        for name, shape in said.get("tensors", {}).items()
    }
    logical: dict[str, object] = {**tensors, **others}
    processes = said.get("processes") is True
    now: Learned = learn(
        load if processes else told(load, like),
        logical=logical,
        ranks=stored.mesh,
        dtype=stored.dtype,
        processes=processes,
    )
    before: dict[str, str] = said.get("versions", {})
    versions = tuple(
        f"{name} is {now.versions.get(name, 'not imported')}, was {each}"
        for name, each in before.items()
        if now.versions.get(name) != each
    )
    has = stored.buffers.keys() & (now.layouts.keys() if now.sampled else stored.buffers.keys())
    expected = Stored(
        stored.mesh,
        stored.tensors,
        {name: each for name, each in stored.buffers.items() if name in has},
        stored.dtype,
        partial=True,
    )
    kept = {
        device: {name: held for name, held in buffers.items() if name in has}
        for device, buffers in now.held.items()
    }
    layouts = {name: each for name, each in now.layouts.items() if name in has}
    findings = tuple(each for each in now.findings if each not in said.get("findings", ()))
    comparison = compare(replace(now, held=kept, layouts=layouts), expected)
    return LearnedAgain(path, comparison, versions, findings)
