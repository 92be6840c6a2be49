"""What emitted modules must have so that they can be verified and compiled."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = (
    "__all__",
    "DTYPE",
    "LOCAL_SOURCE_SHAPE",
    "LOCAL_TARGET_SHAPE",
    "SHAPE",
    "SOURCE",
    "SOURCE_MESH",
    "TARGET",
    "TARGET_MESH",
    "source_box",
    "source_shape",
    "target_box",
    "target_shape",
    "_HOST",
)
"""The names that `verify` uses of every module."""

JAX = ("pad", "reshard", "source_sharding", "target_sharding", "unpad")
"""Those by which `verify` runs a module of JAX's."""

JAX_PROGRAMS = (
    "PADDED_SOURCE_SHAPE",
    "PADDED_TARGET_SHAPE",
    "SOURCE_AXES",
    "SOURCE_IDS",
    "TARGET_AXES",
    "TARGET_IDS",
    "WIRE_BYTES",
    "_HOST",
)
"""Those by which its programs are compiled."""


@dataclass(frozen=True)
class Contract:
    """The names that the modules of a backend export for `verify` and for `compile`.

    `verified` and `compiled` come beside NAMES. `grouped`: the names of a group's module.
    """

    verified: tuple[str, ...]
    compiled: tuple[str, ...]
    grouped: tuple[str, ...] = ()
