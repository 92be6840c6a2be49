"""`shardwright emit`: write the bundles of reshards."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.cli.written import written
from shardwright.codegen.spec.config import Config
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import SUPPORT
from shardwright.codegen.spec.matmul import Operation
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.operations.answers import Within

NAMED = 4
"""The most removed files to list by name; for more, print only their number."""

Bundles = Sequence[tuple[Operation, dict[str, str]]]
Groups = Sequence[tuple[Group, dict[str, str]]]


@dataclass(frozen=True, kw_only=True)
class EmitCommand(Flags):
    """Write bundles: modules, the plan and a review page.

    By default a reshard gets a Pallas TPU module and a Triton GPU module.

    Example: shardwright emit --mesh x=2,y=3 --shape 6x6 --dtype f32 --source "P('x', 'y')" --target
    "P('y', 'x')" --name transpose -o kernels
    """

    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder to write the bundles into, one folder each (default: `out` of FILE, or "
            "generated).",
            show_default=False,
        ),
    ] = None

    stablehlo: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the StableHLO of a program to this file instead of a bundle: the code of "
            "one device, with its collectives.",
            show_default=False,
        ),
    ] = None

    @property
    def kept(self) -> str:
        return (
            "bundles are moved into place once all are complete, so none is half written; run "
            "`shardwright emit` again for the rest"
        )

    def run(self) -> None:
        """Emit and write the bundles, and report the outcome for every folder."""
        if self.stablehlo is not None:
            self._write_stablehlo(self.stablehlo)
            return
        from shardwright.codegen.operations.answers import Within

        chosen = self.chosen
        root = self.output or chosen.out
        # Equal reshards share the bundle of the first of them, but a user may select any of them
        # alone.
        shared = {chosen.folder(each.name): each for each in chosen.operations}
        described = [replace(each, name=folder) for folder, each in shared.items()]
        features = self.features or ()
        given = (each.name for each in chosen.operations) if self.described else self.names
        within = Within(chosen, features=dict.fromkeys(given, tuple(features)))
        with bar("emitting") as show:
            bundles: list[tuple[Operation, dict[str, str]]] = []
            for done, description in enumerate(described, 1):
                bundles.append((description, self._files(description, within)))
                show(done, len(described), description.name)
            grouped = [(group, self._files(group, within)) for group in chosen.groups]
            changed = self._written(root, bundles, grouped)
        if self.quiet:
            return
        said = dict.fromkeys(chosen.modules().values())
        removed = sorted({path.parent.name for path in changed if path.parent != root})
        for name in dict.fromkeys((SUPPORT, *said, *removed)):
            touched = [path for path in changed if path.parent == root / name]
            if touched or name in said:
                print(f"{root / name}: {_said(touched)}")

    def _write_stablehlo(self, path: Path) -> None:
        from shardwright.codegen.backends.jax_spmd.stablehlo import stablehlo_text
        from shardwright.codegen.operations.emit.program import partition_described

        asked = self.one_operation()
        if asked.kind != "program":
            rule = "only a program can be written as StableHLO"
            raise InputError(
                rule, argument="--stablehlo", got=asked.name, expected="the name of a [[program]]"
            )
        try:
            text = stablehlo_text(partition_described(asked))
        except InputError as error:
            raise self.located(error, asked.name) from None
        written(path, text, "--stablehlo")

    def _written(self, root: Path, bundles: Bundles, groups: Groups) -> tuple[Path, ...]:
        from shardwright.codegen.operations.emit.write import write_bundles

        try:
            folders = None if self.described else self.chosen.folders
            with warnings.catch_warnings(record=True) as edits:
                warnings.simplefilter("always")
                changed = write_bundles(root, bundles, groups, self._owner(), folders)
        except InputError as error:
            raise self._said_of(error) from None
        for edit in edits:
            print(f"warning: {edit.message}", file=sys.stderr)
        return changed

    def _files(self, said: Operation | Group, within: "Within") -> dict[str, str]:
        from shardwright.codegen.operations.kinds import answers_of

        try:
            return answers_of(said).files(said, within)
        except InputError as error:
            raise self.located(error, said.name) from None

    def _owner(self) -> Config | None:
        """Return the config that describes the whole folder, or None if flags change or describe
        the reshard, or if the file is a manifest."""
        changed = any(key != "name" for key in self.fields)
        return None if changed or self.config.root is None else self.config

    def _said_of(self, error: InputError) -> InputError:
        """Add the flag or the file to a write error."""
        match error.argument:
            case "output":
                if self.output is not None or self._owner() is None:
                    return error.named("--output")
                return self.config.located(error.named("out"))
            case "name":
                return error.named("--name") if self.described else error
            case _:
                return error


def _said(changed: Sequence[Path]) -> str:
    """Say in words whether a bundle's files were written, removed or unchanged."""
    removed = [path.name for path in changed if not path.exists()]
    written = len(changed) - len(removed)
    parts = [f"{written} file{'' if written == 1 else 's'} written"] if written else []
    named = ", ".join(removed) if len(removed) <= NAMED else f"{len(removed)} files"
    parts += [f"{named} removed"] if removed else []
    return ", ".join(parts) or "unchanged"
