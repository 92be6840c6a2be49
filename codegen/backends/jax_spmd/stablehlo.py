"""The program of one device as StableHLO with its collectives, extracted from the lowering of
`shard_map`.

The text is self-contained: it uses only the StableHLO and func dialects, and nothing from JAX,
Shardy or shardwright. Every device runs it; the module's `IN_SHARDINGS` states which part of each
argument a device has.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from shardwright.codegen.backends.jax_spmd.constants import STORED, stored_text
from shardwright.codegen.backends.jax_spmd.module import program_module
from shardwright.codegen.backends.jax_spmd.names import function_name
from shardwright.codegen.backends.jax_spmd.opaque import blobs, stored_calls
from shardwright.codegen.backends.jax_spmd.varying import is_checked
from shardwright.codegen.ops.literals import dtype_name
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.registry import PROGRAM_FILE
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.program import Value

PLAIN = "builtin.module(func.func(chlo-legalize-to-stablehlo),symbol-dce)"
FOREIGN = ("sdy.", "mhlo.", "jax.", "stablehlo.mesh")
"""Prefixes of attributes that other dialects have added."""


def stablehlo_text(program: Partitioned) -> str:
    """Return the StableHLO of a program. The text depends only on the program and the version of
    JAX."""
    names: dict[str, Any] = {"__name__": program.program.name}
    with tempfile.TemporaryDirectory() as folder:
        names["__file__"] = f"{folder}/{PROGRAM_FILE}"
        Path(folder, STORED).write_text(
            stored_text(program.constants, blobs(stored_calls(program))), "utf-8"
        )
        exec(compile(program_module(program).text, PROGRAM_FILE, "exec"), names)
    local = program.local
    name = function_name(local.program.name)
    pieces = local.axes.pieces
    arguments = (local.of(number) for number in local.body.arguments)
    avals = program.inputs(tuple(map(_aval, arguments)))
    specs = jax.tree.leaves(names["IN_SHARDINGS"])
    mapped = jax.shard_map(
        names[name],
        mesh=jax.sharding.AbstractMesh(
            tuple(size for _, size in pieces), tuple(axis for axis, _ in pieces)
        ),
        in_specs=jax.tree.unflatten(jax.tree.structure(avals), specs),
        out_specs=names["OUT_SHARDINGS"],
        check_vma=is_checked(local),
    )
    traced = jax.jit(mapped, keep_unused=True).trace(*avals)
    module = traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
    with module.context, ir.Location.unknown():
        return _one_device(module, name, program.mesh.size)


def _aval(value: Value) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an argument. Raise InputError for random keys."""
    if value.dtype.startswith("key<"):
        raise InputError(
            "StableHLO cannot take JAX keys as arguments",
            argument=value.name,
            got=value.dtype,
            expected="the data of the key, from jax.random.key_data",
        )
    return jax.ShapeDtypeStruct(value.shape, dtype_name(value.dtype).removesuffix("_"))


def _one_device(module: Any, name: str, devices: int) -> str:
    functions = {_symbol(op): op for op in module.body.operations if "sym_name" in op.attributes}
    main = functions["main"]
    block = main.regions[0].blocks[0]
    manual = [op for op in block.operations if op.operation.name == "sdy.manual_computation"]
    if len(manual) != 1 or len(list(block.operations)) != 2:
        raise InternalError("the program is not one shard_map")
    inner = manual[0].operation.regions[0].blocks[0]
    if list(manual[0].operation.operands) != list(block.arguments):
        raise InternalError("the shard_map does not take the arguments as they are")
    _put_in_place(main, inner)
    for op in list(module.body.operations):
        if op.operation.name == "sdy.mesh":
            op.operation.erase()
    _clean(module.operation)
    module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), devices)
    module.operation.attributes["mhlo.num_partitions"] = count
    _register()
    PassManager.parse(PLAIN).run(module.operation)
    module.operation.verify()
    return str(module.operation.get_asm(enable_debug_info=False))


@functools.cache
def _register() -> None:
    stablehlo.register_stablehlo_passes()


def _put_in_place(main: Any, block: Any) -> None:
    end = list(block.operations)[-1]
    results = list(end.operands)
    kind = ir.FunctionType.get([a.type for a in block.arguments], [r.type for r in results])
    attributes = {
        "sym_name": ir.StringAttr.get("main"),
        "function_type": ir.TypeAttr.get(kind),
        "sym_visibility": ir.StringAttr.get("public"),
    }
    with ir.InsertionPoint(main):
        made = ir.Operation.create("func.func", attributes=attributes, regions=1)
    block.append_to(made.regions[0])
    with ir.InsertionPoint(end):
        ir.Operation.create("func.return", operands=results)
    end.operation.erase()
    main.operation.erase()


def _clean(op: Any) -> None:
    for name in list(map(str, op.attributes)):
        if name.startswith(FOREIGN):
            del op.attributes[name]
    for key in ("arg_attrs", "res_attrs"):
        if key in op.attributes:
            del op.attributes[key]
    for region in op.regions:
        for block in region:
            for inner in block.operations:
                _clean(inner.operation)


def _symbol(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)
