"""`shardwright show`: the derivation of a reshard, and the pictures and pages of operations."""

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.plan import (
    planned_as_emitted,
    planned_matmul,
    planned_of,
    print_matmul,
)
from shardwright.codegen.cli.written import written
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.planner.network.rings import Rings
    from shardwright.ir.matmul_plan import MatmulPlan
    from shardwright.ir.plan import Plan


@dataclass(frozen=True, kw_only=True)
class ShowCommand(Flags):
    """Show how the tiles are derived, with pictures.

    The derivation gives the layout maps, their inverse, the ranges of a tile, its peers and the
    period of the cuts. A FILE with suffix .program is a program in text form: its shardings are
    propagated and shown as f32[16@d,32@t] beside their source lines.

    Example: shardwright show --mesh x=4 --shape 8 --dtype f32 --source "P('x')" --target "P(None)"
    """

    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page to explore the plan of `emit`: devices, tiles, steps, bytes. It "
            "works offline.",
        ),
    ] = None
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the picture to this file as SVG.")
    ] = None
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Add the bytes of jax.jit and of Shardy's passes to the page of a program.",
        ),
    ] = False

    def run(self) -> None:
        """Print the derivation, or write the picture."""
        if self.compare and self.html is None:
            raise InputError(
                "there is no page to add the comparison to",
                argument="--compare",
                got="no page",
                expected="--html FILE, or plan --compare",
            )
        if self.file is not None and self.file.suffix == ".program":
            print(_program(self.file), end="")
            return
        group = self.group
        if group is not None and self.svg is None and not self.compare:
            self._show_group(group)
            return
        asked = self.one_operation()
        if self.compare and not isinstance(asked, ProgramDescription):
            raise InputError(
                "this option is for programs only",
                argument="--compare",
                got=asked.name,
                expected="no --compare, or plan --compare",
            )
        if isinstance(asked, MatmulDescription):
            self._show_matmul(asked)
            return
        if isinstance(asked, ProgramDescription):
            self._show_program(asked)
            return
        if isinstance(asked, RelayoutDescription | ModelDescription):
            self._show_page(asked)
            return
        if self.svg is not None:
            written(self.svg, self._picture(asked), "--svg")
        if self.html is not None:
            _write_page(self.html, {asked.name: self._planned(asked)}, asked.name, asked.topology)
        if self.svg is None and self.html is None:
            self._print(asked)

    def _show_group(self, group: Group) -> None:
        """Print each kind of reshard of a group, or write one page for all kinds."""
        kinds = self.kinds(group)
        if self.html is None:
            for folder, (description, count) in kinds.items():
                print(f"{folder}, {count} of the tensors of {group.name}")
                self._print(description)
                print()
            return
        plans = {
            f"{folder}, {count} of {len(group.members)} tensors": self._planned(description)
            for folder, (description, count) in kinds.items()
        }
        first, _ = next(iter(kinds.values()))
        _write_page(self.html, plans, group.name, first.topology)

    def _planned(self, description: Description) -> "Plan":
        """Return the plan that `emit` uses."""
        try:
            return planned_as_emitted(description)
        except InputError as error:
            raise self.located(error, description.name) from None

    def _print(self, description: Description) -> None:
        from shardwright.codegen import show as shown
        from shardwright.codegen.show.rings import rings_text

        planned = planned_of(self, description)
        print(shown.summary(planned))
        print()
        print(shown.derivation(planned.reshard))
        print()
        print(shown.tile_table(planned))
        print()
        print(shown.pictures(planned))
        for rings in self._rings(description):
            print()
            print(rings_text(rings))

    def _rings(self, description: Description) -> tuple["Rings", ...]:
        from shardwright.codegen.emit.ways import rings_by

        if description.topology is None or not description.reshard().adds:
            return ()
        return tuple(rings_by(self._planned(description), description.backends).values())

    def _picture(self, description: Description) -> str:
        """Return the picture of rings if there are any, else of tiles."""
        from shardwright.codegen import show as shown
        from shardwright.codegen.show.rings import rings_svg
        from shardwright.codegen.text.docstring import title

        planned = planned_of(self, description)
        drawn = (rings_svg(rings, title(planned)) for rings in self._rings(description))
        return next((each for each in drawn if each), None) or shown.svg(planned)

    def _show_program(self, description: ProgramDescription) -> None:
        """Print a program beside its source lines, or write its picture or page."""
        from shardwright.codegen.compile.totals import totals
        from shardwright.codegen.emit.program import traced_described
        from shardwright.codegen.show.program import show_program
        from shardwright.codegen.show.program_explorer import program_explorer
        from shardwright.codegen.show.program_svg import program_svg

        try:
            program = traced_described(description)
            svg = None if self.svg is None else program_svg(program)
            others = totals(program, description)[1:] if self.compare else ()
            with contextlib.chdir(description.home):  # source lines are relative to it
                page = program_explorer(
                    *(program, description.name, description.topology),
                    [asdict(each) for each in others],
                )
                text = show_program(program.program)
        except InputError as error:
            raise self.located(error, description.name) from None
        if self.svg is not None and svg is not None:
            written(self.svg, svg, "--svg")
        if self.html is not None:
            written(self.html, page, "--html")
        if self.svg is None and self.html is None:
            print(text)

    def _show_page(self, description: RelayoutDescription | ModelDescription) -> None:
        """Print the review page of a relayout or model, or write its picture or explorer page."""
        from shardwright.codegen.operations import answers_of
        from shardwright.codegen.operations.answers import Within
        from shardwright.codegen.show.model_explorer import MODEL_PAGE
        from shardwright.codegen.show.parts_svg import parts_svg

        of_model = isinstance(description, ModelDescription)
        refused, option = (self.svg, "--svg") if of_model else (self.html, "--html")
        if refused is not None:
            raise InputError(
                f"{'models have no picture' if of_model else 'relayouts have no explorer page'}",
                argument=option,
                got=description.name,
                expected="--html FILE" if of_model else "--svg FILE",
            )
        if self.svg is not None and isinstance(description, RelayoutDescription):
            written(self.svg, parts_svg(description.relayout()), "--svg")
            return
        try:
            files = answers_of(description).files(description, Within(self.chosen))
        except InputError as error:
            raise self.located(error, description.name) from None
        if self.html is not None:
            written(self.html, files[MODEL_PAGE], "--html")
        else:
            print(files["README.md"], end="")

    def _show_matmul(self, description: MatmulDescription) -> None:
        """Print the plan of a matmul, or write its picture or explorer page."""
        from shardwright.codegen.show.matmul_explorer import matmul_explorer

        planned = planned_matmul(self, description)
        if self.svg is not None:
            _write_matmul(self.svg, planned)
        if self.html is None:
            if self.svg is None:
                print_matmul(planned)
            return
        page = matmul_explorer(planned, description.name, description.topology)
        written(self.html, page, "--html")


def _write_matmul(path: Path, planned: "MatmulPlan") -> None:
    """Write the picture of a matmul."""
    from shardwright.codegen.show.matmul_svg import matmul_svg
    from shardwright.codegen.text.docstring import TABLE_DEVICES

    picture = matmul_svg(planned)
    if picture is None:
        raise InputError(
            "the matmul has too many devices for a picture",
            argument="--svg",
            got=f"{planned.matmul.mesh.size} devices",
            expected=f"at most {TABLE_DEVICES}, or --html",
        )
    written(path, picture, "--svg")


def _write_page(path: Path, plans: Mapping[str, "Plan"], name: str, topology: str | None) -> None:
    """Write an explorer page for several plans."""
    from shardwright.codegen.show.explorer import explorer, explorer_of

    if len(plans) == 1:
        (plan,) = plans.values()
        text = explorer(plan, name, topology)
    else:
        text = explorer_of(plans, name, f"{len(plans)} plans", topology)
    written(path, text, "--html")


def _program(path: Path) -> str:
    """Return a program text with its propagated shardings."""
    from shardwright.codegen.propagate.checked import check_propagated, unknown_kinds
    from shardwright.codegen.propagate.propagation import propagate
    from shardwright.codegen.show.program import show_program
    from shardwright.ir.program_parse import parse_program

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the file cannot be read as the text of a program",
            argument="FILE",
            got=f"{path}: {getattr(error, 'strerror', None) or 'no text'}",
            expected="the text of str(sw.partition(…))",
        ) from None
    try:
        program = parse_program(text, check_propagated)
        return show_program(replace(propagate(program).program, warnings=unknown_kinds(program)))
    except InputError as error:
        raise error.named(str(path)) from None
