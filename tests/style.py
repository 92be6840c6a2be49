"""The commands that say whether emitted text is as the formatter and the linter want it."""

from __future__ import annotations

FORMATTED = ["ruff", "format", "--line-length", "100", "--check", "--isolated"]
LINTED = [
    "ruff",
    "check",
    "--line-length",
    "100",
    "--isolated",
    "--select",
    "F,W,I,UP,B,C4,SIM,PIE",
]
