"""The table from the kind of an op to the statements of its local form."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.backends.jax_spmd.forms.bits import random_bits
from shardwright.codegen.backends.jax_spmd.forms.boxes import boxes
from shardwright.codegen.backends.jax_spmd.forms.choices import arg, top_k
from shardwright.codegen.backends.jax_spmd.forms.reductions import reduced
from shardwright.codegen.backends.jax_spmd.forms.rows import (
    gather,
    is_read_whole,
    read_slice,
    scatter,
    write_slice,
)
from shardwright.codegen.backends.jax_spmd.forms.scans import cumulative
from shardwright.codegen.backends.jax_spmd.forms.shifts import shift
from shardwright.codegen.backends.jax_spmd.forms.statement import FormLines, FormText
from shardwright.codegen.backends.jax_spmd.forms.windows import (
    convolution,
    select_and_scatter,
    window,
)
from shardwright.codegen.propagate.kinds import CUMULATIVE, SCATTERS, WINDOWS

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
