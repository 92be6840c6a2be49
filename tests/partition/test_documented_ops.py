"""The documentation lists the ops that modules have, and no others."""

from __future__ import annotations

import re

from places import ROOT

from shardwright.codegen.backends.jax_spmd.ops import HOST
from shardwright.codegen.ops.contractions import CONTRACTIONS
from shardwright.codegen.ops.elementwise import FUNCTIONS, INFIX
from shardwright.codegen.ops.expressions import TABLE
from shardwright.codegen.ops.matrices import MATRIX_OPS
from shardwright.codegen.ops.random_ops import RANDOM


def test_every_op_is_listed() -> None:
    text = (ROOT / "docs" / "programs.md").read_text()
    section = text.partition("\n## Ops\n")[2].split("\n\n")[1]
    listed = re.findall(r"`([\w-]+)`", section)
    assert listed == sorted(
        {*CONTRACTIONS, *FUNCTIONS, *INFIX, *MATRIX_OPS, *RANDOM, *TABLE, *HOST}
    )
