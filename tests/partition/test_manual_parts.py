"""A `shard_map` inside: what is said of it, and what cannot be."""

from __future__ import annotations

import re
from typing import Any

import flow_cases
import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, PartitionSpec

import shardwright as sw

MESH = sw.Mesh({"d": 2, "t": 2})
P = PartitionSpec


def program_of(fn: Any, *avals: Any, **more: Any) -> sw.Partitioned:
    return sw.partition(fn, *avals, **{"mesh": MESH, "mode": "cheapest", **more})


def mapped(fn: Any, mesh: Any = None, **more: Any) -> Any:
    return jax.shard_map(fn, mesh=mesh or AbstractMesh((2, 2), ("d", "t")), **more)


def test_the_users_own_collectives_are_counted_and_named() -> None:
    case = flow_cases.manual_cases(AbstractMesh((2, 2), ("d", "t")))["one axis"]
    program = program_of(case.fn, *case.avals, in_shardings=case.inputs)
    own = program.communications[0]
    assert str(own) == (
        "[C1] all-reduce over t, 256 B: psum_invariant of dot_general_2 in a shard_map, as you "
        "wrote it"
    )
    assert own.remedy == "nothing of ours: it stays as you wrote it"
    assert own.saving == 0


def test_specs_are_constraints_of_what_is_around() -> None:
    """What is split otherwise is moved there, and the reason says so."""
    inner = mapped(jnp.tanh, in_specs=P("d", None), out_specs=P(None, "d"), axis_names={"d"})
    x = flow_cases.shaped(8, 16)
    program = program_of(inner, x, in_shardings='[{}, {"d"}]', out_shardings='[{}, {"d"}]')
    (moved,) = program.communications
    assert moved.op == "all_to_all"
    assert moved.reason == "manual takes it with this sharding"


def test_axes_beside_manual_ones_are_partitioned() -> None:
    """A matmul along t inside of what is manual along d: its sum is ours, over t alone."""
    inner = mapped(
        lambda x, a, b: jnp.tanh(x @ a) @ b,
        in_specs=(P("d"), P(), P()),
        out_specs=P("d"),
        axis_names={"d"},
    )
    avals = (flow_cases.shaped(8, 16), flow_cases.shaped(16, 32), flow_cases.shaped(32, 16))
    given = ('[{"d"}, {}]', '[{}, {"t"}]', '[{"t"}, {}]')
    program = program_of(inner, *avals, in_shardings=given)
    assert [(each.op, each.axes) for each in program.communications] == [("all_reduce", ("t",))]
    text = sw.emit(program).files("inner")["jax_spmd.py"]
    assert 'lax.psum(out, "t")' in text
    assert '"d")' not in text.partition("# Types and shardings")[0]


def test_a_mesh_of_its_own_is_refused() -> None:
    other = AbstractMesh((4,), ("e",))
    inner = mapped(lambda x: lax.psum(x, "e"), other, in_specs=P(), out_specs=P(), check_vma=False)
    program = program_of(inner, flow_cases.shaped(8, 16), mesh=sw.Mesh({"d": 4}))
    with pytest.raises(sw.InputError) as caught:
        _ = program.communications
    assert re.sub(r", [\w/.]*test_manual_parts.py:\d+", "", str(caught.value)) == (
        "shard_map: a shard_map in an emitted program must be on the mesh of the program\n"
        'got: <["e"=4]>\nexpected: <["d"=4]>'
    )


def test_groups_of_devices_are_refused() -> None:
    inner = mapped(
        lambda x: lax.psum(x, "d", axis_index_groups=[[0], [1]]),
        in_specs=P("d"),
        out_specs=P("d"),
        check_vma=False,
    )
    program = program_of(inner, flow_cases.shaped(8, 16))
    with pytest.raises(sw.InputError, match="must include all devices along its axes"):
        sw.emit(program).files("grouped")
