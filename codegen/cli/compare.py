"""`shardwright compare`: where do two stored layouts differ?"""

from pathlib import Path
from typing import Annotated

import typer

HELP = "TOML of a stored layout, as str(sw.Stored(…)) writes it."


def compare(
    found: Annotated[Path, typer.Argument(metavar="FOUND", help=HELP)],
    expected: Annotated[Path, typer.Argument(metavar="EXPECTED", help=HELP)],
    relayout: Annotated[
        bool, typer.Option("--bytes", help="Print what devices must receive from FOUND instead.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print nothing where there is no difference.")
    ] = False,
) -> None:
    """Print where FOUND stores other elements than EXPECTED, as ranges with names.

    Exit code 1 if anything differs. With --bytes: what a relayout from FOUND to EXPECTED must move,
    also to other devices.

    Example: shardwright compare loader.toml server.toml
    """
    from shardwright.codegen.learn.compare import compare as compared
    from shardwright.ir.relayout import Relayout, plan_relayout
    from shardwright.ir.stored import Stored

    sides = [Stored.read(path) for path in (found, expected)]
    if relayout:
        print(plan_relayout(Relayout(*sides)))
        return
    comparison = compared(*sides)
    if not (quiet and comparison.same):
        print(comparison)
    if not comparison.same:
        raise typer.Exit(1)
