"""Ops that call something: functions on the host, kernels, and bodies of loops and branches."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.ops.build import Builder, Shapes
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import dtype_text, integers, listed
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Body, Op, Rule, ops_of

CALLBACK = "pure_callback"
"""The op that calls a function on the host."""
OPAQUE = ("custom_partitioning", "pallas_call")
"""Calls of which only shapes are known, and which modules store."""


def _whole_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    for place, shape in enumerate((*operands, *results)):
        for dim, extent in enumerate(shape):
            build.factor(extent, {place: dim}, kind="need_replication")
    return build.rule()


def _import_of(op: Op) -> str:
    module, _, name = str(op.param("callback")).partition(":")
    return f"from {module} import {name}"


def host_functions(body: Body) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each function that a program calls on the host."""
    for op in ops_of(body):
        if op.kind == CALLBACK:
            module, _, name = str(op.param("callback")).partition(":")
            yield module, name


def _callback(text: OpText) -> Expression:
    name = str(text.op.param("callback")).partition(":")[2]
    count = len(text.given)
    pairs = zip(text.shapes[count:], text.dtypes[count:], strict=True)
    shapes = [f"jax.ShapeDtypeStruct({integers(shape)}, {dtype_text(d)})" for shape, d in pairs]
    wanted = shapes[0] if len(shapes) == 1 else listed(shapes)
    method = f'vmap_method="{text.has("vmap_method")}"' if text.has("vmap_method") else ""
    return "jax.pure_callback", [name, wanted, *text.given, *filter(None, [method])]


KINDS = (
    OpKind(CALLBACK, _whole_rule, _callback, imports=_import_of),
    OpKind("io_callback", refused="a function with effects would run once on every device"),
    OpKind("pallas_call", _whole_rule, group="opaque"),
    OpKind("custom_partitioning", group="opaque"),
    OpKind("cond", group="control"),
    OpKind("manual", group="control"),
    OpKind("remat", group="control"),
    OpKind("scan", group="control"),
    OpKind("while", group="control"),
)
