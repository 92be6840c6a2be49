"""Dump stages for developers: `SHARDWRIGHT_DUMP=plan,context` prints the results of these stages to
standard error."""

from __future__ import annotations

import os
import sys

from shardwright.ir.errors import unknown

VARIABLE = "SHARDWRIGHT_DUMP"

RESHARD = ("plan", "context")
"""The stages of a reshard: its plan as JSON, and the context of each template."""

PROGRAM = (
    *("propagate", "edges", "even", "pad", "shift", "permute", "once"),
    *("plan", "transpose", "tidy", "fold", "join"),
)
"""The stages of a program, which are the passes of `codegen/partition/passes.py`."""


def dump(stage: str, text: str) -> None:
    """Print the text of a stage if `VARIABLE` names the stage. Call this only if `VARIABLE` is set,
    because the text is slow to build.

    Raise InputError if `VARIABLE` names a stage that does not exist.
    """
    asked = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    known = tuple(dict.fromkeys((*PROGRAM, *RESHARD)))
    for name in asked:
        if name not in known:
            raise unknown("no such stage", name, known, VARIABLE)
    if stage in asked:
        print(f"after {stage}:\n{text}", file=sys.stderr)
