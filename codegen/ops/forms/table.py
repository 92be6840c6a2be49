"""The table from the kind of an op to its local form."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.forms.bits import random_bits
from shardwright.codegen.ops.forms.boxes import boxes, is_split_as_boxes
from shardwright.codegen.ops.forms.choices import arg, top_k
from shardwright.codegen.ops.forms.form import LocalForm, OpTensors
from shardwright.codegen.ops.forms.reductions import reduced
from shardwright.codegen.ops.forms.rows import gather, read_slice, scatter, write_slice
from shardwright.codegen.ops.forms.scans import cumulative
from shardwright.codegen.ops.forms.shifts import shift
from shardwright.codegen.ops.forms.windows import (
    convolution,
    select_and_scatter,
    window,
)
from shardwright.codegen.ops.kinds import CUMULATIVE, SCATTERS, WINDOWS

FORMS: dict[str, Callable[[OpTensors], LocalForm | None]] = {
    **dict.fromkeys(CUMULATIVE, cumulative),
    **dict.fromkeys(("argmax", "argmin"), arg),
    "top_k": top_k,
    **dict.fromkeys(("reduce_prod", "reduce_and", "reduce_or", "reduce_xor"), reduced),
    "gather": gather,
    **dict.fromkeys(SCATTERS, scatter),
    "slice": lambda tensors: (boxes if is_split_as_boxes(tensors) else read_slice)(tensors),
    **dict.fromkeys(("split", "concatenate", "pad", "rev", "take_rows"), boxes),
    "dynamic_slice": read_slice,
    "dynamic_update_slice": write_slice,
    "random_bits": random_bits,
    "shift": shift,
    "conv_general_dilated": convolution,
    **dict.fromkeys(WINDOWS - {"reduce_window"}, window),
    "select_and_scatter_add": select_and_scatter,
}


def form_of(tensors: OpTensors) -> LocalForm | None:
    """Return the local form of an op, None if it has none. An op with a rule from the user keeps
    that rule, and empty tensors have no form because collectives do not accept them."""
    make = FORMS.get(tensors.op.kind)
    is_empty = any(0 in shape for shape in (*tensors.shapes[:1], *tensors.shapes[tensors.result :]))
    return None if make is None or is_empty or tensors.op.rule is not None else make(tensors)
