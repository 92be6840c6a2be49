"""Emission of programs: turn a partitioned function into the files of its bundle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shardwright.codegen import registry
from shardwright.codegen.operations.emit.package import BundlePackage
from shardwright.codegen.operations.emit.write import write_file
from shardwright.codegen.partition.entry import partition
from shardwright.codegen.partition.local.communications import WrittenRows
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.registry import PROGRAM_FILE
from shardwright.codegen.show.program_review import program_page
from shardwright.codegen.spec.description import check_name
from shardwright.codegen.spec.program import REFERENCE, ProgramDescription
from shardwright.codegen.spec.references import named
from shardwright.codegen.text.single_file import single_file
from shardwright.codegen.text.support import support_text
from shardwright.codegen.text.templates import render
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError, wrong_type
from shardwright.ir.mesh import Mesh

LOCKFILE = "plan.json"
"""The file with one line for each communication of a program."""


@dataclass(frozen=True, repr=False)
class ProgramBundle(Drawn):
    """The emission of a program: the module that every device runs, and its communication."""

    program: Partitioned
    module: str  # the source text
    rows: WrittenRows  # the table of communications, with the module's names for values
    topology: str | None = None  # to price each communication

    def __repr__(self) -> str:
        return f"<ProgramBundle of {len(self.module.splitlines())} lines: {self.program!r}>"

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name. Equal bundles have equal
        texts."""
        return {
            PROGRAM_FILE: self.module,
            **registry.program_backend().stored(self.program),
            "README.md": program_page(
                self.program,
                name,
                self.rows,
                self.topology,
                registry.program_backend().kernel_lines(self.program),
            ),
            "__init__.py": render("common/package.py.jinja", BundlePackage("program", False)),
            LOCKFILE: self.program.to_json(self.topology, self.rows),
        }

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path` and return the files that changed.

        Raises InputError if the folder's name is not an identifier, or if the folder has files but
        is not the bundle of a program.
        """
        if not isinstance(path, str | Path):
            raise wrong_type(path, Path, '"generated/mlp_step"', "path")
        folder = Path(path)
        try:
            check_name(folder.name)
        except InputError as error:
            raise error.named("path") from None
        texts = {folder / name: text for name, text in self.files(folder.name).items()}
        self._check_ours(folder)
        folder.mkdir(parents=True, exist_ok=True)
        changed = [file for file, text in texts.items() if _differs(file, text)]
        for file in changed:
            write_file(file, texts[file])
        return tuple(changed)

    def _check_ours(self, folder: Path) -> None:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / PROGRAM_FILE).is_file():
            raise InputError(
                "refusing to overwrite a folder that is not the bundle of a program",
                argument="path",
                got=str(folder),
                expected="a different name for the bundle, or that folder moved away",
            )


def _differs(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_text("utf-8", "replace") != text


def partition_described(description: ProgramDescription) -> Partitioned:
    """Import, trace and partition the user's function.

    Raises InputError if the function cannot be imported or traced, or receives more than its
    budget.
    """
    program = traced_described(description)
    check_budget(description, program)
    return program


def traced_described(description: ProgramDescription) -> Partitioned:
    """Trace and partition the user's function, without checking its budget. Source lines are
    relative to the config's folder."""
    with contextlib.chdir(description.home):
        given = given_of(description)
        return partition(
            given.function,
            *given.avals,
            mesh=given.mesh,
            in_shardings=given.in_shardings,
            out_shardings=given.out_shardings,
            mode=description.mode,
            gather=description.gather,
            memory_limit=description.memory_limit,
            topology=description.topology,
            kernels=description.kernels,
        )


def check_budget(description: ProgramDescription, program: Partitioned) -> None:
    """Raise InputError for a program that receives more than its budget."""
    received, budget = program.bytes_received, description.budget
    if budget is not None and received > budget:
        raise InputError(
            "the program receives more than its budget",
            argument="budget",
            got=f"{received:,} bytes, the most in {_largest(program)}",
            expected=f"at most {budget:,} bytes",
        )


def _largest(program: Partitioned) -> str:
    return str(max(program.communications, key=lambda each: each.bytes))


@dataclass(frozen=True)
class GivenProgram:
    """The imported objects that a description names."""

    function: Callable[..., Any]
    avals: tuple[Any, ...]
    mesh: Mesh
    in_shardings: Any
    out_shardings: Any


def given_of(description: ProgramDescription) -> GivenProgram:
    """Import the objects that a description names, searching the current folder first."""
    function, arguments = (
        named(getattr(description, key), key) for key in ("function", "arguments")
    )
    shardings = (
        named(text, key) if text is not None and REFERENCE.fullmatch(text) else text
        for key, text in (
            ("in_shardings", description.in_shardings),
            ("out_shardings", description.out_shardings),
        )
    )
    avals = _called(arguments, description.arguments) if callable(arguments) else arguments
    if not isinstance(avals, tuple):
        raise InputError(
            "the arguments must be a tuple, or a function that returns one",
            argument="arguments",
            got=type(avals).__name__,
            expected="(jax.ShapeDtypeStruct((8, 16), jnp.float32), …)",
        )
    return GivenProgram(function, avals, Mesh.parse(description.mesh), *shardings)


def _called(arguments: Callable[[], Any], reference: str) -> Any:
    try:
        return arguments()
    except Exception as error:  # a user's function may raise anything
        raise InputError(
            "the function that returns the arguments failed",
            argument="arguments",
            got=f"{reference} ({type(error).__name__}: {error})".splitlines()[0],
            expected="a function without parameters that returns a tuple of avals",
        ) from error


def emit_program(program: Partitioned, topology: str | None = None) -> ProgramBundle:
    """Return the bundle of a partitioned function, with communication priced on a topology.

    Raises InputError, with the user's line, for operations that a module cannot express.
    """
    module = registry.program_backend().render(program)
    text = module.text
    if program.kernels:
        text = single_file(text, partial(support_text, program.kernels))
    if topology is not None:
        program.seconds(topology)
    return ProgramBundle(program, text, module.rows, topology)
