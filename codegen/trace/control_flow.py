"""Trace loops, branches and `shard_map`. They become ops with bodies."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from shardwright.codegen.trace.batched import with_one_test
from shardwright.codegen.trace.params import Params
from shardwright.codegen.trace.stacks import OpBlock
from shardwright.ir.errors import InputError
from shardwright.ir.program import Op
from shardwright.ir.sharding import Sharding


def scan(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add a loop of known length, and return its results."""
    params = equation.params
    consts, carries = params["num_consts"], params["num_carry"]
    lengths = (consts, carries, len(equation.invars) - consts - carries)
    own = (
        ("length", int(params["length"])),
        ("lengths", lengths),
        ("reverse", params["reverse"]),
    )
    return control(block, "scan", equation, [params["jaxpr"]], own)


def while_loop(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add a loop with a condition, and return its results."""
    params, atoms = with_one_test(equation)
    lengths = (params["cond_nconsts"], params["body_nconsts"])
    bodies = [params["cond_jaxpr"], params["body_jaxpr"]]
    return control(block, "while", equation, bodies, (("lengths", lengths),), atoms)


def manual(block: OpBlock, equation: Any) -> Sequence[int]:
    """Add a `shard_map`, and return its results.

    Raises InputError for a `jax.pmap`, and for specs that do not fit the mesh or the ranks.
    """
    params, line = equation.params, block.tracer.lines.of(equation)
    operands = tuple(block.read(atom) for atom in equation.invars)
    inner = params["jaxpr"]
    if any(str(name).startswith("_internal_pmap") for name in params["mesh"].axis_names):
        raise InputError(
            "a program must not contain jax.pmap",
            argument="fn",
            got=f"jax.pmap{f', {line}' if line else ''}",
            expected="jax.vmap, or jax.shard_map on the mesh of the program",
        )
    sides = (
        ("in_shardings", params["in_specs"], equation.invars),
        ("out_shardings", params["out_specs"], equation.outvars),
    )
    try:
        shardings: Params = tuple(
            (name, tuple(map(functools.partial(_spec, block, params["mesh"]), specs, atoms)))
            for name, specs, atoms in sides
        )
        mesh = _spec(block, params["mesh"], jax.sharding.PartitionSpec(), None).mesh
    except InputError as error:
        raise error.named(f"shard_map, {line}" if line else "shard_map") from None
    outer = block.tracer.manual, block.tracer.manual_mesh
    block.tracer.manual, block.tracer.manual_mesh = outer[0] | params["newly_manual_axes"], mesh
    body = block.tracer.body(inner, (), block.tracer.names_of(operands), other="manual_arg")
    block.tracer.manual, block.tracer.manual_mesh = outer
    results = tuple(block.tracer.value("manual", v.aval, line) for v in equation.outvars)
    axes = tuple(name for name in params["mesh"].axis_names if name in params["newly_manual_axes"])
    name = inner.debug_info.func_name
    name = name if name.isidentifier() else "manual"
    own: Params = tuple(sorted((("manual_axes", axes), ("name", name), *shardings)))
    block.ops.append(Op("manual", operands, results, own, (body,), line=line))
    return results


def control(
    block: OpBlock,
    kind: str,
    equation: Any,
    jaxprs: list[Any],
    params: Params,
    atoms: Sequence[Any] | None = None,
) -> Sequence[int]:
    """Add an op with these bodies, and return its results. `atoms`: the operands, by default the
    equation's."""
    line = block.tracer.lines.of(equation)
    operands = tuple(map(block.read, equation.invars if atoms is None else atoms))
    bodies = tuple(
        block.tracer.body(each.jaxpr, each.consts, names, other=f"{kind}_arg")
        for each, names in zip(jaxprs, _names(block, Op(kind, operands, (), params)), strict=False)
    )
    results = tuple(block.tracer.value(kind, v.aval, line) for v in equation.outvars)
    block.ops.append(Op(kind, operands, results, params, bodies, line=line))
    return results


def _names(block: OpBlock, op: Op) -> Iterator[Sequence[str]]:
    names = block.tracer.names_of(op.operands)
    if op.kind == "cond":
        yield from itertools.repeat(names[1:])
    elif op.kind == "while":
        first, second = op.integers("lengths")
        yield [*names[:first], *names[first + second :]]
        yield names[first:]
    else:
        yield names


def _spec(block: OpBlock, mesh: Any, spec: Any, atom: Any) -> Sharding:
    rank = 0 if atom is None else len(atom.aval.shape)
    found: Sharding = block.tracer.meshes.of_jax(jax.sharding.NamedSharding(mesh, spec), rank)
    return found
