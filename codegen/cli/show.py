"""`shardwright show`: the derivation and the pictures."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.plan import planned_matmul, planned_of, print_matmul
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.ir.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ShowCommand(Flags):
    """Show how the tiles are derived, and pictures of them.

    The derivation gives the layout maps, their inverse, the ranges of a tile, its peers and the
    period of the cuts. A FILE that ends in .program is the text form of a program: its shardings
    are propagated and shown as f32[16@d,32@t] beside the lines they come from.
    """

    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the picture to this file as SVG.")
    ] = None

    def run(self) -> None:
        """Print them, or write the picture."""
        from shardwright.codegen import show as shown

        if self.file is not None and self.file.suffix == ".program":
            print(_program(self.file), end="")
            return
        group = self.group
        if group is not None and self.svg is None:
            for folder, (description, count) in self.kinds(group).items():
                print(f"{folder}, {count} of the tensors of {group.name}")
                self._print(description)
                print()
            return
        asked = self.one_operation()
        if isinstance(asked, MatmulDescription):
            self._print_matmul(asked)
            return
        if isinstance(asked, ProgramDescription):
            self._print_program(asked)
            return
        description = asked
        if self.svg is not None:
            _write(self.svg, shown.svg(planned_of(self, description)))
            print(f"{self.svg}: written")
            return
        self._print(description)

    def _print(self, description: Description) -> None:
        from shardwright.codegen import show as shown

        planned = planned_of(self, description)
        print(shown.derivation(planned.reshard))
        print()
        print(shown.tile_table(planned))
        print()
        print(shown.pictures(planned))

    def _print_program(self, description: ProgramDescription) -> None:
        from shardwright.codegen.emit.program import partition_described
        from shardwright.codegen.show.program import show_program

        try:
            print(show_program(partition_described(description).program))
        except InputError as error:
            raise self.located(error, description.name) from None

    def _print_matmul(self, description: MatmulDescription) -> None:
        if self.svg is not None:
            rule = "a picture as SVG is of a reshard"
            raise InputError(rule, argument="--svg", got=description.name, expected="no --svg")
        print_matmul(planned_matmul(self, description))


def _program(path: Path) -> str:
    """Return a program from its text, propagated and shown."""
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
            got=f"{path}: {error}",
            expected="the text that str(sw.partition(…)) gives",
        ) from None
    try:
        program = parse_program(text, check_propagated)
        return show_program(replace(propagate(program).program, warnings=unknown_kinds(program)))
    except InputError as error:
        raise error.named(str(path)) from None


def _write(path: Path, text: str) -> None:
    from shardwright.codegen.emit.write import write_file

    if not path.parent.is_dir():
        raise InputError(
            "cannot be written: no such folder",
            argument="--svg",
            got=str(path),
            expected="a file in a folder that exists and can be written",
        )
    try:
        write_file(path, text)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            argument="--svg",
            got=str(path),
            expected="a file in a folder that exists and can be written",
        ) from None
