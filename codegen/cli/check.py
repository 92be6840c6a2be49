"""`shardwright check`: is what is on disk what would be emitted now?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardwright.codegen.cli.progress import bar

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder that `emit -o` wrote, or one bundle in it.")
]


def check(folder: Folder) -> None:
    """Compare bundles with what would be emitted now.

    Exit code 1 if anything differs.
    """
    from shardwright.codegen.emit.check import check as problems_of

    with bar("checking") as show:
        problems = problems_of(folder, lambda done, total: show(done, total, ""))
    for problem in problems:
        print(problem)
    if problems:
        raise typer.Exit(1)
    print(f"{folder}: as it would be emitted now")
