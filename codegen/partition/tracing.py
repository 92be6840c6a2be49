"""Trace a function, and read its given shardings."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable
from typing import Any

import jax

from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.partition.trees import LEAVES, leaves_of
from shardwright.codegen.trace.constants import split_constants, without_dead
from shardwright.codegen.trace.cotangents import cotangents
from shardwright.codegen.trace.jaxprs import Tracer
from shardwright.codegen.trace.lines import user_line
from shardwright.codegen.trace.meshes import ProgramMeshes
from shardwright.codegen.trace.naming import named
from shardwright.codegen.trace.returned import returned_variables
from shardwright.codegen.trace.transposes import Transposes
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.given import mesh_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Body, Program, Value


def traced(
    fn: Callable[..., Any],
    avals: tuple[Any, ...],
    mesh: Any,
    in_shardings: Any,
    out_shardings: Any,
    strict: bool,
) -> Partitioned:
    """Return the program of a function with only the given shardings.

    Raises InputError for a function that cannot be traced, or for shardings that do not fit its
    values.
    """
    own = mesh_of(mesh, "mesh")
    closed, results = _traced(fn, avals)
    out_tree, out_shapes = jax.tree.structure(results), [r.shape for r in jax.tree.leaves(results)]
    ways = [path for path, _ in jax.tree_util.tree_flatten_with_path(results)[0]]
    out_paths = tuple(f"result{jax.tree_util.keystr(path)}" for path in ways)
    paths = jax.tree_util.tree_flatten_with_path(avals)[0]
    in_tree = jax.tree.structure(avals)
    shapes = [tuple(aval.shape) for aval in closed.in_avals]
    one = in_shardings is None or isinstance(in_shardings, LEAVES)
    given = (in_shardings,) * len(avals) if one else in_shardings
    meshes = ProgramMeshes(own)
    inputs = leaves_of(given, in_tree, shapes, meshes, "in_shardings")
    outputs = leaves_of(out_shardings, out_tree, out_shapes, meshes, "out_shardings")
    tracer = Tracer(strict, meshes)
    parameters = _parameters(fn, len(avals))
    names = _names(parameters, [path for path, _ in paths])
    body = tracer.body(closed.jaxpr, closed.consts, names)
    values = list(tracer.values)
    for argument, sharding in zip(body.arguments, inputs, strict=True):
        old = values[argument]
        values[argument] = Value(old.name, old.shape, old.dtype, sharding, old.line)
    groups = tuple(tuple(dict.fromkeys(g)) for g in tracer.groups.values())
    program = Program(
        re.sub(r"\W", "", getattr(fn, "__name__", "")) or "program",
        tuple(meshes.known),
        tuple(values),
        body,
        outputs,
        groups,
        tracer.warnings_of(without_dead(body, frozenset().union(*groups))),
        out_paths,
        tuple(parameters[path[0].idx] + jax.tree_util.keystr(path[1:]) for path, _ in paths),
        _held(returned_variables(fn, results), results, ways),
    )
    backward = [tracer.noted[value.name].backward for value in values]
    rules = Transposes(values, tracer.noted, lambda closed: _converted(closed, own))
    return Partitioned(
        named(split_constants(program), tracer.noted, cotangents(body, values, backward, rules)),
        own,
        lambda leaves: jax.tree.unflatten(in_tree, leaves),
        lambda leaves: jax.tree.unflatten(out_tree, leaves),
        tuple(tracer.constants),
        tuple(tracer.opaque.values()),
        parameters,
    )


def _held(variables: tuple[str, ...], results: Any, ways: list[Any]) -> tuple[str, ...]:
    """Return the path of each result in the variable that the function returns, such as
    `params['w']`, or "" for a result in no variable."""
    if not variables:
        return ()
    is_tuple = type(results) is tuple
    own = [(variables[way[0].idx], way[1:]) if is_tuple else (variables[0], way) for way in ways]
    return tuple(name and name + jax.tree_util.keystr(way) for name, way in own)


def _converted(closed: Any, mesh: Mesh) -> tuple[Body, list[Value]]:
    """Return the ops and values of a jaxpr that is not the user's own."""
    tracer = Tracer(False, ProgramMeshes(mesh))
    body = tracer.body(closed.jaxpr, closed.consts, ("",) * len(closed.in_avals), other="given")
    return body, tracer.values


def _traced(fn: Callable[..., Any], avals: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the jaxpr of a function, and the shapes of its results as a tree.

    Raise InputError, with the line of the user's code, if the function cannot be traced.
    """
    if not callable(fn):
        raise InputError(
            "the function must be callable",
            argument="fn",
            got=in_a_line(fn),
            expected="a function of arrays",
        )
    try:
        closed, shape = jax.make_jaxpr(fn, return_shape=True)(*avals)
    except InputError as error:
        raise error.named(", ".join(filter(None, (error.argument, _place(error))))) from None
    except Exception as error:  # the function may raise anything
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            "the function cannot be traced for these arguments",
            argument=", ".join(filter(None, ("fn", _place(error)))),
            got=said,
            expected="a function that jax.jit takes, and avals of its arguments",
        ) from error
    return closed, shape


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [line for each in frames if (line := user_line(each.filename, each.lineno or 0))]
    return str(lines[-1]) if lines else ""


def _parameters(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return distinct names for the arguments, taken from the function's parameters. Additional
    arguments get names such as `arg3`."""
    try:
        signature = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        signature = {}.values()
    own = [p.name for p in signature if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    return tuple(own[i] if i < len(own) else f"arg{i}" for i in range(count))


def _names(parameters: tuple[str, ...], paths: list[Any]) -> list[str]:
    texts = [parameters[path[0].idx] + jax.tree_util.keystr(path[1:]) for path in paths]
    return [re.sub(r"\W+", "_", text.replace("<flat index ", "")).strip("_") for text in texts]
