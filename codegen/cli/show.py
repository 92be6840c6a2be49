"""`shardwright show`: the derivation and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardwright.codegen.cli.flags import Given, takes_description
from shardwright.codegen.cli.plan import planned_of
from shardwright.codegen.spec.description import FIELDS
from shardwright.ir.errors import InputError

Svg = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the picture to this file as SVG.")
]


@takes_description(*(field for field in FIELDS if field != "backends"))
def show(given: Given, svg: Svg = None) -> None:
    """Show how the tiles are derived, and pictures of them.

    The derivation gives the layout maps, their inverse, the ranges of a tile, its peers and the
    period of the cuts.
    """
    from shardwright.codegen import show as shown

    planned = planned_of(given)
    if svg is not None:
        _write(svg, shown.svg(planned))
        print(f"{svg}: written")
        return
    print(shown.derivation(planned.reshard))
    print()
    print(shown.tile_table(planned))
    print()
    print(shown.pictures(planned))


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
