"""`shardwright show`: the derivation of a reshard, and the pictures and pages of operations."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.written import written
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import Operation
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.ir.plan import Plan


@dataclass(frozen=True, kw_only=True)
class ShowCommand(Flags):
    """Show how the tiles are derived, with pictures.

    The derivation gives the layout maps, their inverse, the ranges of a tile, its peers and the
    period of the cuts. A FILE with suffix .program is a program in text form: its shardings are
    propagated and shown as f32[16@d,32@t] next to their source lines.

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
        from shardwright.codegen.operations.kinds import answers_of

        said = self.one_operation()
        self._refuse_options(said)
        answers, drawn = answers_of(said), list[tuple[Path, str, str]]()
        try:
            if self.svg is not None:
                drawn.append((self.svg, answers.picture(said), "--svg"))
            if self.html is not None:
                page = answers.page(said, compare=self.compare)
                drawn.append((self.html, page, "--html"))
            if not drawn:
                sys.stdout.write(answers.text(said))
        except InputError as error:
            raise self.located(error, said.name) from None
        for each in drawn:
            written(*each)

    def _refuse_options(self, said: Operation) -> None:
        """Raise InputError for an option that an operation does not take."""
        from shardwright.codegen.operations.kinds import answers_of

        takes = answers_of(said).options
        if self.compare and "show --compare" not in takes:
            raise InputError(
                f"a {said.kind} does not take this option",
                argument="--compare",
                got=said.name,
                expected="no --compare"
                + (", or plan --compare" if "plan --compare" in takes else ""),
            )
        pictures = (self.svg, "--svg", "picture"), (self.html, "--html", "explorer page")
        for (given, option, what), (_, other, _) in zip(pictures, pictures[::-1], strict=True):
            if given is not None and f"show {option}" not in takes:
                raise InputError(
                    f"{said.kind}s have no {what}",
                    argument=option,
                    got=said.name,
                    expected=f"{other} FILE",
                )

    def _show_group(self, group: Group) -> None:
        """Print each kind of reshard of a group, or write one page for all kinds."""
        from shardwright.codegen.operations.emit.choice import planned
        from shardwright.codegen.operations.kinds import answers_of

        plans = {}
        for folder, (description, count) in self.kinds(group).items():
            try:
                if self.html is None:
                    print(f"{folder}, {count} of the tensors of {group.name}")
                    print(answers_of(description).text(description))
                    continue
                plan = planned(description)
            except InputError as error:
                raise self.located(error, description.name) from None
            plans[f"{folder}, {count} of {len(group.members)} tensors"] = plan
        if self.html is not None:
            first, _ = next(iter(self.kinds(group).values()))
            _write_page(self.html, plans, group.name, first.topology)


def _write_page(path: Path, plans: Mapping[str, "Plan"], name: str, topology: str | None) -> None:
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
