"""The documentation lists the ops that modules have, and no others."""

from __future__ import annotations

import re

from places import ROOT

from shardwright.codegen.backends.jax_spmd.contractions import CONTRACTIONS
from shardwright.codegen.backends.jax_spmd.expressions import TABLE
from shardwright.codegen.backends.jax_spmd.matrices import MATRIX_OPS
from shardwright.codegen.backends.jax_spmd.ops import HOST
from shardwright.codegen.backends.jax_spmd.random_ops import RANDOM
from shardwright.codegen.propagate.elementwise import FUNCTIONS, INFIX


def test_every_op_is_listed() -> None:
    text = (ROOT / "docs" / "programs.md").read_text()
    section = text.partition("\n## Ops\n")[2].split("\n\n")[1]
    listed = re.findall(r"`([\w-]+)`", section)
    assert listed == sorted(
        {*CONTRACTIONS, *FUNCTIONS, *INFIX, *MATRIX_OPS, *RANDOM, *TABLE, *HOST}
    )
