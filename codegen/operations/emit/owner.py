"""The config that owns a folder of bundles: nothing else may change the folder's contents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shardwright.codegen.spec.config import Config
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import SUPPORT, Manifest
from shardwright.codegen.spec.matmul import Operation
from shardwright.ir.errors import InputError

NAMED = 8
"""The most bundles to name in a message."""


def owner_of(root: Path, config: Config) -> str:
    """Return the path of a config relative to the folder, as the manifest has it."""
    return Path(os.path.relpath(config.path, root)).as_posix()


def owner_path(root: Path, listed: Manifest) -> Path | None:
    """Return the path of the config that a manifest names, or None."""
    if listed.config is None:
        return None
    return Path(os.path.normpath(root / listed.config))


def check_owner(
    root: Path, before: Manifest, given: Sequence[Operation | Group], config: Config | None
) -> None:
    """Raise InputError if bundles must not be written into a folder.

    If a config owns the folder, no other config may write into it. Without a config, only bundles
    that the manifest lists, with unchanged descriptions, may be written again. A config does not
    take over a folder that has bundles which it does not describe.
    """
    owner = owner_path(root, before)
    if config is not None and owner is not None:
        if before.config != owner_of(root, config) and owner.is_file():
            raise InputError(
                "a different config owns this folder",
                argument="output",
                got=f"{root}, written by {owner}",
                expected=f"a different folder, or the tables of {config.path} moved to {owner}",
            )
    elif config is not None:
        _check_foreign(root, before, config)
    elif owner is not None and owner.is_file():
        listed = {*(each.description for each in before.entries)}
        groups = {*(each.group for each in before.groups)}
        for one in given:
            if one not in listed and one not in groups:
                raise InputError(
                    "a config owns this folder but does not describe this bundle",
                    argument="output",
                    got=f"{one.name}, with a description that {owner} does not have",
                    expected=f"a table for it in {owner}, or a different folder",
                )


def _check_foreign(root: Path, before: Manifest, config: Config) -> None:
    others = sorted(before.folders().keys() - {*config.names()} - {SUPPORT})
    if others:
        listed = ", ".join(others[:NAMED]) + (", …" if len(others) > NAMED else "")
        raise InputError(
            f"the folder holds bundles that {config.path} does not describe",
            argument="output",
            got=f"{listed} in {root}",
            expected="tables for these bundles, or a different folder",
        )
