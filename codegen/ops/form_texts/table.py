"""The table from the kind of an op to the statements of its local form."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.form_texts.bits import random_bits
from shardwright.codegen.ops.form_texts.boxes import boxes
from shardwright.codegen.ops.form_texts.choices import arg, top_k
from shardwright.codegen.ops.form_texts.reductions import reduced
from shardwright.codegen.ops.form_texts.rows import (
    gather,
    is_read_whole,
    read_slice,
    scatter,
    write_slice,
)
from shardwright.codegen.ops.form_texts.scans import cumulative
from shardwright.codegen.ops.form_texts.shifts import shift
from shardwright.codegen.ops.form_texts.statement import FormLines, FormText
from shardwright.codegen.ops.form_texts.windows import (
    convolution,
    select_and_scatter,
    window,
)
from shardwright.codegen.ops.kinds import CUMULATIVE, SCATTERS, WINDOWS

FORM_TEXTS: dict[str, Callable[[FormText], FormLines]] = {
    **dict.fromkeys(CUMULATIVE, cumulative),
    **dict.fromkeys(("argmax", "argmin"), arg),
    "top_k": top_k,
    **dict.fromkeys(("reduce_prod", "reduce_and", "reduce_or", "reduce_xor"), reduced),
    "gather": gather,
    **dict.fromkeys(SCATTERS, scatter),
    "slice": lambda form: (read_slice if is_read_whole(form) else boxes)(form),
    **dict.fromkeys(("split", "concatenate", "pad", "rev", "take_rows"), boxes),
    "dynamic_slice": read_slice,
    "dynamic_update_slice": write_slice,
    "random_bits": random_bits,
    "shift": shift,
    "conv_general_dilated": convolution,
    **dict.fromkeys(WINDOWS - {"reduce_window"}, window),
    "select_and_scatter_add": select_and_scatter,
}
IMPORTS = {"random_bits": "from jax.extend.random import threefry_2x32"}
"""The imports that forms need besides `jax`, `jnp` and `lax`."""
