"""Calls that have no Python text. They are stored as StableHLO, in the file of long constants."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import export
from jax.extend import core
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.steps import Compute, LocalBody, LocalProgram
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.text.python_text import fitted
from shardwright.codegen.trace.opaque import OpaqueCall, Partitioning
from shardwright.ir.errors import InputError

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
Key = tuple[int, tuple[LocalLayout, ...]]  # a call's number, its operands' and results' layouts


@dataclass(frozen=True)
class StoredCall:
    """A stored call for shards: its name in the module, the lines that load it, and its serialized
    bytes."""

    name: str
    lines: tuple[str, ...]
    data: bytes


def stored_calls(program: Partitioned) -> dict[Key, StoredCall]:
    """Return the stored calls of a program's module. Equal calls share their bytes.

    Raises InputError, with the line of the user's code, for a call that cannot be exported.
    """
    local, made = program.local, dict[tuple[str, bytes], StoredCall]()
    found: dict[Key, StoredCall] = {}
    for step in _steps((local.body, *local.functions)):
        key = key_of(step, local)
        if key in found:
            continue
        call: OpaqueCall = program.opaque[key[0]]
        platforms, data = _exported(call, _on_shards(call, key[1], local))
        known = made.get((call.name, data))
        if known is None:
            name = _fresh(call.name, {each.name for each in made.values()})
            lines = (
                f"# StableHLO of {call.name}{f', {call.line}' if call.line else ''}: for "
                f"{', '.join(platforms)}",
                *fitted(f'{name} = export.deserialize(bytearray(CONSTANTS["{name}"])).call', 0),
            )
            known = made[call.name, data] = StoredCall(name, lines, data)
        found[key] = known
    return found


def blobs(calls: Mapping[Key, StoredCall]) -> dict[str, np.ndarray]:
    """Return the serialized bytes of stored calls, by the names of the calls."""
    return {call.name: np.frombuffer(call.data, np.uint8) for call in calls.values()}


def _fresh(name: str, taken: set[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain((name,), numbered) if each not in taken)


def key_of(step: Compute, local: LocalProgram) -> Key:
    """Return the key of a call: its number, and the layouts of its operands and results."""
    layouts = tuple(local.values[v].layout for v in (*step.operands, *step.results))
    return step.op.integers("call")[0], layouts


def _steps(bodies: Iterable[LocalBody]) -> Iterator[Compute]:
    for body in bodies:
        for step in body.steps:
            if isinstance(step, Compute):
                yield from _steps(step.bodies)
                if kind_of(step.op.kind).group == "opaque":
                    yield step


def _on_shards(call: OpaqueCall, layouts: tuple[LocalLayout, ...], local: LocalProgram) -> Any:
    """Return the jaxpr of a call on shards with these layouts.

    Raises InputError if the call's own partition function fails or requests other shardings.
    """
    own = call.partitioning
    if own is None or not any(layout.used for layout in layouts):
        return call.jaxpr
    mesh = AbstractMesh(tuple(local.axes.sizes.values()), tuple(local.axes.sizes))
    placed = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, _spec(layout)))
        for a, layout in zip((*call.jaxpr.in_avals, *call.jaxpr.out_avals), layouts, strict=True)
    ]
    count = len(call.jaxpr.in_avals)
    trees = own.inputs.unflatten(placed[:count]), own.outputs.unflatten(placed[count:])
    try:
        _, function, results, arguments = own.partition(*own.static, mesh, *trees)
        _check_kept(own, placed, (arguments, results))
        shards = [jax.ShapeDtypeStruct(_local(x), x.dtype) for x in placed]
        made = jax.make_jaxpr(function)(*own.inputs.unflatten(shards[:count]))
    except Exception as error:  # a user's function may raise anything
        raise _refused(call, error) from error
    types = [[(x.shape, x.dtype) for x in side] for side in (made.out_avals, shards[count:])]
    if types[0] != types[1]:
        raise _refused(call, ValueError(f"its shards are {types[0]}, not {types[1]}"))
    return made


def _check_kept(own: Partitioning, placed: list[Any], given: tuple[Any, Any]) -> None:
    sides = zip((own.inputs, own.outputs), given, strict=True)
    asked = [each for tree, side in sides for each in tree.flatten_up_to(side)]
    for x, sharding in zip(placed, asked, strict=True):
        if not sharding.is_equivalent_to(x.sharding, len(x.shape)):
            raise ValueError(
                f"its partition function asks for {sharding.spec}, not {x.sharding.spec}"
            )


def _spec(layout: LocalLayout) -> PartitionSpec:
    return PartitionSpec(*(names or None for names in layout.dims))


def _local(x: Any) -> tuple[int, ...]:
    return tuple(x.sharding.shard_shape(x.shape))


def _exported(call: OpaqueCall, jaxpr: Any) -> tuple[list[str], bytes]:
    """Return the platforms for which a jaxpr can be lowered, and the bytes of its export for them.

    Raises InputError if there is none.
    """
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in jaxpr.in_avals]
    every = core.jaxpr_as_fun(jaxpr)

    def function(*args: Any) -> Any:
        made = every(*args)
        return made[0] if len(made) == 1 else tuple(made)

    def lowered(platforms: list[str]) -> Any:
        return export.export(jax.jit(function), platforms=platforms)(*avals)

    with _without_locations():
        able, errors = [], []
        for platform in PLATFORMS:
            try:
                lowered([platform])
                able.append(platform)
            except Exception as error:  # a lowering may raise anything
                errors.append(error)
        if not able:
            raise _refused(call, errors[0])
        return able, bytes(lowered(able).serialize())


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Omit source lines and file paths from lowerings in this context."""
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _refused(call: OpaqueCall, error: Exception) -> InputError:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    return InputError(
        "the module must hold this call as StableHLO, for shards, and cannot",
        argument="fn",
        got=f"{call.name}{f', {call.line}' if call.line else ''} ({said})",
        expected="a pallas_call without effects, or a partition function that keeps the shardings "
        "and has no collectives",
    )
