"""A file that an option names."""

from __future__ import annotations

from pathlib import Path

from shardwright.ir.errors import InputError


def written(path: Path, text: str, option: str) -> None:
    """Write what an option asks for, and say so."""
    from shardwright.codegen.emit.write import write_file

    if not path.parent.is_dir():
        raise InputError(
            "cannot be written: no such folder",
            argument=option,
            got=str(path),
            expected="a file in a folder that exists and can be written",
        )
    try:
        write_file(path, text)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            argument=option,
            got=str(path),
            expected="a file in a folder that exists and can be written",
        ) from None
    print(f"{path}: written")
