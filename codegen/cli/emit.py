"""`shardwright emit`: write the bundles of reshards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shardwright.codegen.cli.flags import Given, takes_description
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.describe import FIELDS, Description
from shardwright.ir.errors import InputError

Output = Annotated[
    Path, typer.Option("-o", "--output", help="Folder that the bundles go into, one folder each.")
]


@takes_description(*FIELDS)
def emit(given: Given, output: Output = Path("generated")) -> None:
    """Write the bundles of reshards.

    A bundle is a Pallas TPU module, a Triton GPU module, the plan and a review page.
    """
    from shardwright.codegen.writing import write_bundles

    descriptions = given.many()
    with bar("emitting") as show:
        bundles = []
        for done, description in enumerate(descriptions, 1):
            bundles.append((description, _files(given, description)))
            show(done, len(descriptions), description.name)
        try:
            changed = write_bundles(output, bundles)
        except InputError as error:
            flags = ("output",) if given.file else ("output", "name")
            raise error.named(f"--{error.argument}") if error.argument in flags else error from None
    for description in descriptions:
        folder = output / description.name
        print(f"{folder}: {_said([path for path in changed if path.parent == folder])}")


def _said(changed: Sequence[Path]) -> str:
    """What became of a bundle's files."""
    removed = [path.name for path in changed if not path.exists()]
    written = len(changed) - len(removed)
    parts = [f"{written} file{'' if written == 1 else 's'} written"] if written else []
    parts += [f"{', '.join(removed)} removed"] if removed else []
    return ", ".join(parts) or "unchanged"


def _files(given: Given, description: Description) -> dict[str, str]:
    from shardwright.codegen.bundle import emit_described

    try:
        return emit_described(description).files(description.name)
    except InputError as error:
        raise given.located(error, description) from None
