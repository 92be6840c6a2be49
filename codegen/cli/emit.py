"""`shardwright emit`: write the bundles of reshards."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.backends import registry
from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import SUPPORT
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.ir.plan import Plan

NAMED = 4
"""So many files that are removed are named, more only counted."""

Bundles = Sequence[tuple[Description, dict[str, str]]]
Groups = Sequence[tuple[Group, dict[str, str]]]


@dataclass(frozen=True, kw_only=True)
class EmitCommand(Flags):
    """Write the bundles of reshards.

    A bundle is a Pallas TPU module, a Triton GPU module, the plan and a review page.
    """

    backends: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(registry.NAMES)}, with commas between (default: the first two)."
        ),
    ] = None
    gradient: Annotated[
        bool | None,
        typer.Option(
            "--gradient",
            help="With gradients: the reverse reshard, in a module beside each.",
            show_default=False,
        ),
    ] = None
    single_file: Annotated[
        bool | None,
        typer.Option(
            "--single-file",
            help="With the support modules in each module, so that it can be copied alone.",
            show_default=False,
        ),
    ] = None
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Folder that the bundles go into, one folder each."),
    ] = Path("generated")

    def run(self) -> None:
        """Emit, write, and say what became of every folder."""
        descriptions, groups = self.many(), self.groups()
        for group in groups:
            _check_members(group, descriptions)
        with bar("emitting") as show:
            bundles, plans = [], {}
            for done, description in enumerate(descriptions, 1):
                files, plans[description.name] = _emitted(self, description)
                bundles.append((description, files))
                show(done, len(descriptions), description.name)
            grouped = [(group, _group_files(self, group, plans)) for group in groups]
            changed = self._written(bundles, grouped)
        support = [path for path in changed if path.parent == self.output / SUPPORT]
        if support:
            print(f"{self.output / SUPPORT}: {_said(support)}")
        for name in (*(d.name for d in descriptions), *(group.name for group in groups)):
            folder = self.output / name
            print(f"{folder}: {_said([path for path in changed if path.parent == folder])}")

    def _written(self, bundles: Bundles, groups: Groups) -> tuple[Path, ...]:
        """Return the files that changed."""
        from shardwright.codegen.emit.write import write_bundles

        try:
            return write_bundles(self.output, bundles, groups)
        except InputError as error:
            flags = ("output",) if self.file else ("output", "name")
            raise error.named(f"--{error.argument}") if error.argument in flags else error from None


def _check_members(group: Group, descriptions: Sequence[Description]) -> None:
    """Raise InputError for a member without the module that a group's module uses."""
    needed = registry.grouping().name
    for description in descriptions:
        if description.name in group.members and needed not in description.backends:
            raise InputError(
                f"the members of a group need {needed}",
                argument="--backends",
                got=f"{', '.join(description.backends)} for {description.name} of {group.name}",
                expected=f"{needed} among them",
            )


def _said(changed: Sequence[Path]) -> str:
    """Return what became of a bundle's files."""
    removed = [path.name for path in changed if not path.exists()]
    written = len(changed) - len(removed)
    parts = [f"{written} file{'' if written == 1 else 's'} written"] if written else []
    named = ", ".join(removed) if len(removed) <= NAMED else f"{len(removed)} files"
    parts += [f"{named} removed"] if removed else []
    return ", ".join(parts) or "unchanged"


def _emitted(given: Flags, description: Description) -> "tuple[dict[str, str], Plan]":
    """Return the files of a bundle, and its plan."""
    from shardwright.codegen.emit.emit import emit_described

    try:
        bundle = emit_described(description)
        return bundle.files(description.name), bundle.plan
    except InputError as error:
        raise given.located(error, description) from None


def _group_files(given: Flags, group: Group, plans: "dict[str, Plan]") -> dict[str, str]:
    try:
        return registry.grouping().group_files(group, plans)
    except InputError as error:
        raise error.named(f"{given.file}, group {group.name!r}, {error.argument}") from None
