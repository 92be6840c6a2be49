"""The documentation lists the ops that modules have, and no others."""

from __future__ import annotations

import re

from places import ROOT

from shardwright.codegen.ops.collectives import KINDS as COLLECTIVE_KINDS
from shardwright.codegen.ops.table import KINDS

INSERTED = {"shift", "take_rows"}
"""Ops that passes insert."""


def test_every_op_is_listed() -> None:
    text = (ROOT / "docs" / "programs.md").read_text()
    section = text.partition("\n## Ops\n")[2].split("\n\n")[1]
    collectives = {kind.name for kind in COLLECTIVE_KINDS}
    listed = re.findall(r"`([\w-]+)`", section)
    written = {name for name, kind in KINDS.items() if kind.text and name not in collectives}
    assert listed == sorted(written - INSERTED)
