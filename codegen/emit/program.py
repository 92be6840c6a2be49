"""Emission of programs: from a partitioned function to the files of its bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.backends.jax_spmd.module import FILE, module_text
from shardwright.codegen.emit.package import BundlePackage
from shardwright.codegen.emit.templates import render
from shardwright.codegen.emit.write import write_file
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.show.program_review import program_page
from shardwright.ir.errors import InputError, wrong_type


@dataclass(frozen=True)
class ProgramBundle:
    """What is emitted for a program: the module of one device, and what it communicates."""

    program: Partitioned

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name; the same for the same
        program."""
        return {
            FILE: module_text(self.program),
            "README.md": program_page(self.program, name),
            "__init__.py": render("common/package.py.jinja", BundlePackage("program", False)),
            "plan.json": self.program.to_json(),
        }

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path`; return the files that changed.

        Raises InputError where the folder's name is no identifier, or it holds other files of these
        names.
        """
        if not isinstance(path, str | Path):
            raise wrong_type(path, Path, '"generated/mlp_step"', "path")
        folder = Path(path)
        if not folder.name.isidentifier():
            raise InputError(
                "the folder of a bundle is a Python package, whose name is an identifier",
                argument="path",
                got=folder.name or str(folder),
                expected="letters, digits and underscores, not starting with a digit",
            )
        texts = {folder / name: text for name, text in self.files(folder.name).items()}
        self._check_ours(folder)
        folder.mkdir(parents=True, exist_ok=True)
        changed = [file for file, text in texts.items() if _differs(file, text)]
        for file in changed:
            write_file(file, texts[file])
        return tuple(changed)

    def _check_ours(self, folder: Path) -> None:
        """Raise InputError for a folder that holds something else than a program's bundle."""
        if folder.is_dir() and any(folder.iterdir()) and not (folder / FILE).is_file():
            raise InputError(
                "a folder that is no bundle of a program stands where one is to be written",
                argument="path",
                got=str(folder),
                expected="another name for the bundle, or that folder out of the way",
            )


def _differs(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_text("utf-8", "replace") != text


def emit_program(program: Partitioned) -> ProgramBundle:
    """Return the bundle of a partitioned function.

    Raises InputError, with the user's line, for what a module cannot say.
    """
    module_text(program)
    return ProgramBundle(program)
