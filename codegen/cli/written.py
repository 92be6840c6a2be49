"""Write a file named by an option."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from shardwright.ir.errors import InputError


def written(path: Path, text: str, option: str) -> None:
    """Write a text to the file that an option names, and print its path."""
    from shardwright.codegen.operations.emit.write import write_file

    check_writable(path, option)
    try:
        write_file(path, text)
    except OSError as error:
        raise _unwritable(error.strerror or "", path, option) from None
    print(f"{path}: written")


def check_writable(path: Path, option: str) -> None:
    """Raise InputError for a path that clearly cannot be written."""
    if not path.parent.is_dir():
        raise _unwritable("no such folder", path, option)
    if path.is_dir():
        raise _unwritable(os.strerror(errno.EISDIR), path, option)
    if not os.access(path.parent, os.W_OK):
        raise _unwritable(os.strerror(errno.EACCES), path, option)


def _unwritable(why: str, path: Path, option: str) -> InputError:
    return InputError(
        f"cannot be written: {why}",
        argument=option,
        got=str(path),
        expected="a file in a folder that exists and can be written",
    )
