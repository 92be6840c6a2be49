"""Notebook displays of plans, bundles, programs, models, relayouts and learned layouts."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from itertools import islice

from shardwright.codegen.learn.learn import Learned
from shardwright.codegen.learn.sizes import LearnedSizes
from shardwright.codegen.operations.emit.matmul import MatmulBundle
from shardwright.codegen.operations.emit.model_bundle import ModelBundle
from shardwright.codegen.operations.emit.program import ProgramBundle
from shardwright.codegen.operations.emit.relayout import RelayoutBundle
from shardwright.codegen.operations.emit.reshard import Bundle
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.show.flows_svg import flows_svg
from shardwright.codegen.show.matmul_svg import matmul_svg
from shardwright.codegen.show.program_svg import program_svg
from shardwright.codegen.show.svg import svg
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.model import Model
from shardwright.ir.model_plan import ModelPlan
from shardwright.ir.plan import DirectPlan, SteppedPlan
from shardwright.ir.relayout import Relayout, RelayoutPlan, plan_relayout
from shardwright.ir.stored import Stored

ROWS = 20
"""The most tensors in the table of a model."""


def html(value: Drawn) -> str:
    """Return HTML for a plan, bundle, program, model, relayout or layout: one line of text, and its
    picture or a table, without external resources.

    Notebooks call this function for the last value of a cell. Raises InputError for other objects.
    """
    try:
        shown = _shown(value)
    except InputError as error:
        if not isinstance(value, Partitioned | ProgramBundle):
            raise
        # A program without a plan: this error says why.
        shown = f"<pre>{escape(str(error))}</pre>"
    return f"<div><code>{escape(repr(value))}</code>{shown}</div>"


def _shown(value: object) -> str:
    match value:
        case Bundle() | MatmulBundle() | RelayoutBundle() | ModelBundle():
            return _shown(value.plan)
        case ProgramBundle():
            return _shown(value.program)
        case DirectPlan() | SteppedPlan():
            return _image(svg(value))
        case MatmulPlan():
            return _image(matmul_svg(value))
        case Partitioned():
            return _image(program_svg(value))
        case Relayout():
            return _image(flows_svg(plan_relayout(value)))
        case RelayoutPlan():
            return _image(flows_svg(value))
        case Model():
            return _tensors(value)
        case ModelPlan():
            return _kinds(value)
        case Learned():
            return _table(value.stored) + _items(value.findings)
        case LearnedSizes():
            rows = {name: (str(form),) for name, form in value.forms.items()}
            return _rows(rows, "buffer", "layout")
        case Stored():
            return _table(value)
        case Drawn() if value.pictured is not value:
            return _shown(value.pictured)
    raise InputError(
        "there is no picture of this value",
        argument="value",
        got=type(value).__name__,
        expected="a plan, a bundle, a program or a layout, for example sw.plan(reshard)",
    )


def _image(picture: str | None) -> str:
    """Return an image element with the picture as data, because inline SVGs would share element
    ids."""
    if picture is None:
        return ""
    data = base64.b64encode(picture.encode()).decode()
    return f'<br/><img alt="" style="max-width: 100%" src="data:image/svg+xml;base64,{data}"/>'


def _table(stored: Stored) -> str:
    first = {name: _shape(buffer.shape(0)) for name, buffer in stored.bound.items()}
    rows = {name: (str(each), first[name]) for name, each in stored.buffers.items()}
    return _rows(rows, "buffer", "layout", "shape on the first device")


def _tensors(model: Model) -> str:
    shown = dict(islice(model.tensors.items(), ROWS))
    rows = {name: (each.dtype, _shape(each.shape)) for name, each in shown.items()}
    left = len(model.tensors) - len(rows)
    return _rows(rows, "tensor", "dtype", "shape") + (f"<p>and {left:,} more</p>" if left else "")


def _kinds(plan: ModelPlan) -> str:
    rows = {
        plan.firsts[number]: (
            f"{plan.counts[number]:,}",
            f"{kind.tensor.dtype} {_shape(kind.tensor.shape)}",
            *map(str, kind.said),
        )
        for number, kind in enumerate(plan.kinds.kinds)
    }
    return _rows(rows, "first tensor", "tensors", "each", "source", "target")


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _rows(rows: Mapping[str, tuple[str, ...]], *heads: str) -> str:
    lines = [heads, *((name, *cells) for name, cells in rows.items())]
    texts = ["".join(f"<td><code>{escape(cell)}</code></td>" for cell in line) for line in lines]
    return f"<table>{''.join(f'<tr>{text}</tr>' for text in texts)}</table>"


def _items(texts: tuple[str, ...]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>" if texts else ""
