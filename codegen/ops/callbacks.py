"""The user's functions that run on the host, which a module imports."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.ops.literals import dtype_text, integers, listed
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Body, ops_of


def host_functions(body: Body) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each function that a program calls on the host."""
    for op in ops_of(body):
        if op.kind == "pure_callback":
            module, _, name = str(op.param("callback")).partition(":")
            yield module, name


def pure_callback(text: OpText) -> Expression:
    """Return the call of a host function with all its operands."""
    name = str(text.op.param("callback")).partition(":")[2]
    count = len(text.given)
    pairs = zip(text.shapes[count:], text.dtypes[count:], strict=True)
    shapes = [f"jax.ShapeDtypeStruct({integers(shape)}, {dtype_text(d)})" for shape, d in pairs]
    wanted = shapes[0] if len(shapes) == 1 else listed(shapes)
    method = f'vmap_method="{text.has("vmap_method")}"' if text.has("vmap_method") else ""
    return "jax.pure_callback", [name, wanted, *text.given, *filter(None, [method])]
