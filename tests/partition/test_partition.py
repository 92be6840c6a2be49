"""`sw.partition`: what a user gives, asks and does wrong."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

import shardwright as sw
from shardwright.ir.program_check import well_formed
from shardwright.ir.program_parse import parse_program
from shardwright.ir.program_text import format_program

MESH = sw.Mesh({"d": 4, "t": 2})


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp(p: dict[str, Any], x: Any) -> Any:
    h = jnp.tanh(x @ p["w1"])
    return h @ p["w2"]


AVALS = ({"w1": shaped(16, 32), "w2": shaped(32, 16)}, shaped(8, 16))
GIVEN = ({"w1": '[{}, {"t"}]', "w2": PartitionSpec("t")}, MESH.sharding('[{"d"}, {}]'))


def test_shardings_come_in_trees_and_leave_in_trees() -> None:
    program = sw.partition(mlp, *AVALS, mesh=MESH, in_shardings=GIVEN)
    parameters, x = program.in_shardings
    assert {name: str(s) for name, s in parameters.items()} == {
        "w1": '[{}, {"t"}]',
        "w2": '[{"t"}, {}]',
    }
    assert str(x) == '[{"d"}, {}]'
    assert str(program.out_shardings) == '[{"d", ?}, {?}]'
    assert str(program.program.value("h").sharding) == '[{"d", ?}, {"t", ?}]'
    well_formed(program.program)
    assert format_program(parse_program(str(program))) == str(program)


def test_a_leaf_of_none_is_free_and_a_prefix_spreads() -> None:
    program = sw.partition(mlp, *AVALS, mesh=MESH, in_shardings=(None, '[{"d"}, {?}]'))
    parameters, _ = program.in_shardings
    assert {str(s) for s in parameters.values()} == {"[{?}, {?}]"}
    program = sw.partition(mlp, *AVALS, mesh=MESH, in_shardings=(PartitionSpec(), None))
    parameters, x = program.in_shardings
    assert {str(s) for s in parameters.values()} == {"[{}, {}]"}
    assert str(x) == "[{?}, {?}]"


def test_why_leads_back_to_an_argument() -> None:
    program = sw.partition(mlp, *AVALS, mesh=MESH, in_shardings=GIVEN)
    changes = program.why("%h")
    assert {change.source for change in changes if change.kind == "dot_general"} == {"p_w1", "x"}
    assert all("test_partition.py" in str(change) for change in changes)


def scaled(x: Any, y: Any) -> Any:
    return sw.constrain(x, '[{"d", ?}p1, {?}]') + y


def test_priorities_are_propagated_one_after_the_other() -> None:
    given = (None, '[{"t", ?}, {?}]')
    program = sw.partition(scaled, shaped(8, 8), shaped(8, 8), mesh=MESH, in_shardings=given)
    assert str(program.out_shardings) == '[{"t", ?}, {?}]'  # said with priority 0
    free = sw.partition(scaled, shaped(8, 8), shaped(8, 8), mesh=MESH)
    assert str(free.after(priority=0).out_shardings) == "[{?}, {?}]"
    assert str(free.after(priority=1).out_shardings) == '[{"d", ?}, {?}]'
    with pytest.raises(sw.InputError) as caught:
        free.after(priority=3)
    assert str(caught.value) == (
        "priority: no sharding has this priority\ngot: 3\nexpected: one of 0, 1"
    )


def test_values_that_are_sharded_alike() -> None:
    def both(x: Any, y: Any) -> Any:
        x, y = sw.shard_alike(x, y)
        return x.sum(), y.sum()

    given = ('[{"d"}, {"t"}]', None)
    program = sw.partition(both, shaped(8, 8), shaped(8, 8), mesh=MESH, in_shardings=given)
    assert list(map(str, program.in_shardings)) == ['[{"d"}, {"t"}]'] * 2
    with pytest.raises(sw.InputError) as caught:
        sw.shard_alike(jnp.zeros(3), jnp.zeros(4))
    assert str(caught.value) == (
        "values: values with the same sharding must have the same shape\n"
        "got: (3,), (4,)\nexpected: one shape"
    )


def test_outside_of_a_program_constraints_do_nothing() -> None:
    x = jnp.arange(4.0)
    value, gradient = jax.value_and_grad(lambda x: (sw.constrain(x, '[{"d"}]') ** 2).sum())(x)
    assert (float(value), gradient.tolist()) == (14.0, [0.0, 2.0, 4.0, 6.0])
    batched = jax.vmap(lambda x: sw.constrain(x, MESH.sharding('[{"d"}]')))(jnp.ones((2, 4)))
    assert batched.shape == (2, 4)


def test_a_manual_computation_lets_its_other_axes_through() -> None:
    devices = jax.sharding.AbstractMesh((4, 2), ("d", "t"))
    spec = PartitionSpec("d", None)
    inner = jax.shard_map(jnp.tanh, mesh=devices, in_specs=spec, out_specs=spec, axis_names={"d"})
    given = ('[{?}, {"t"}]',)
    program = sw.partition(lambda x: inner(x) * 2.0, shaped(8, 16), mesh=MESH, in_shardings=given)
    assert str(program.program.value("tanh").sharding) == '[{?}, {"t", ?}]'
    assert str(program.out_shardings) == '[{"d", ?}, {"t", ?}]'


def refused(**changes: Any) -> str:
    fn = changes.pop("fn", mlp)
    avals = changes.pop("avals", AVALS)
    with pytest.raises(sw.InputError) as caught:
        sw.partition(fn, *avals, **{"mesh": MESH, "in_shardings": GIVEN, **changes})
    return str(caught.value)


def test_mistakes() -> None:
    assert refused(in_shardings=({"w1": None, "w2": None}, '[{"d"}]')) == (
        "in_shardings[1]: there must be one dimension sharding for each dimension of the tensor\n"
        '  [{"d"}]\n  ^^^^^^^\n'
        "got: 1 dimension sharding for a tensor of rank 2\nexpected: 2 dimension shardings"
    )
    assert refused(in_shardings=({"w1": '[{"u"}, {}]', "w2": None}, None)) == (
        "in_shardings[0]['w1']: an axis must exist in the mesh\n"
        '  [{"u"}, {}]\n    ^^^\ngot: "u"\nexpected: one of "d", "t"'
    )
    assert refused(in_shardings=(PartitionSpec("u"), None)) == (
        "in_shardings[0]['w1']: an axis must exist in the mesh\n"
        'got: "u"\nexpected: one of "d", "t"'
    )
    assert refused(out_shardings=PartitionSpec(None, None, "d")) == (
        "out_shardings: a PartitionSpec must not be longer than the rank of the tensor\n"
        "got: P(None, None, 'd') for rank 2\nexpected: a length of at most 2"
    )
    assert refused(out_shardings='[{}p1, {"d"}]') == (
        "out_shardings: an empty closed dimension cannot have a priority: it would have no effect\n"
        '  [{}p1, {"d"}]\n     ^^\ngot: {}p1\nexpected: {} or {?}p1'
    )
    assert refused(in_shardings=({"w1": None}, None)) == (
        "in_shardings[0]: the key w2 is missing\ngot: w1\n"
        "expected: all of w1, w2, each with a sharding, or None to leave it open"
    )
    assert refused(in_shardings=({"w1": None, "w2": None, "w_1": None}, None)) == (
        "in_shardings[0]: unknown key; did you mean w1?\ngot: w_1\nexpected: one of w1, w2"
    )
    assert refused(in_shardings=(3, None)).startswith(
        "in_shardings[0]['w1']: a leaf of shardings must be a Sharding, a NamedSharding"
    )
    assert (
        refused(mode="best")
        == "mode: unknown mode\ngot: best\nexpected: one of as_shardy, cheapest"
    )
    assert refused(in_sharding=None).startswith(
        "sw.partition: unknown argument; did you mean in_shardings?\ngot: in_sharding\nexpected: "
    )
    assert refused(fn=3).startswith("fn: the function must be callable\ngot: 3\n")


def located(said: str) -> str:
    """A message whose line, which must be one of this file, is left out."""
    return re.sub(r", [\w/.]*test_partition.py:\d+(?=: )", " here", said, count=1)


def test_functions_that_cannot_be_traced_name_the_line() -> None:
    cannot = "fn here: the function cannot be traced for these arguments\ngot: "
    said = located(refused(fn=lambda p, x: x if x.sum() > 0 else -x))
    assert said.startswith(f"{cannot}TracerBoolConversionError: ")
    assert located(refused(fn=lambda p, x: p["w3"])) == (
        f"{cannot}KeyError: 'w3'\n"
        "expected: a function that jax.jit takes, and avals of its arguments"
    )
    assert located(refused(fn=lambda p, x: sw.constrain(x, 3))) == (
        "sharding here: the value must be of type str or Sharding\n"
        "got: 3\nexpected: a string such as '[{\"d\"}, {}]' or a Sharding"
    )
    said = located(refused(fn=lambda p, x: sw.shard_alike(x, p["w2"])))
    assert said == (
        "values here: values with the same sharding must have the same shape\n"
        "got: (8, 16), (32, 16)\nexpected: one shape"
    )


def test_trees_that_do_not_fit() -> None:
    prefix = "shardings must be a prefix of the tree of values"
    assert refused(in_shardings=[None, None]) == (
        f"in_shardings: {prefix}\ngot: [None, None]\nexpected: a prefix of "
        "({'w1': *, 'w2': *}, *) (pytree structure error: different types at key path)"
    )
    assert refused(out_shardings={"y": None}) == (
        f"out_shardings: {prefix}\ngot: {{'y': None}}\n"
        "expected: a prefix of * (pytree structure error: different types at key path)"
    )
    assert refused(in_shardings=(None, PartitionSpec("d", "d"))) == (
        "in_shardings[1]: an axis or sub-axis may be used only once\n"
        'got: "d" in dimension 0 and in dimension 1\nexpected: "d" in one place only'
    )
    assert refused(mesh=8) == (
        "mesh: a mesh must be a Mesh, its text, a dict of axes, a JAX mesh or a DeviceMesh\n"
        'got: 8\nexpected: sw.Mesh({"x": 2, "y": 3}) or \'x=2,y=3\''
    )


def test_leaves_that_are_none_or_scalars() -> None:
    """None is no leaf of arguments and results, a number is one of rank 0."""

    def scaled(p: Any, by: Any) -> Any:
        return p["w"] * by, None

    avals = ({"w": shaped(8), "b": None}, 2.0)
    program = sw.partition(scaled, *avals, mesh=MESH, in_shardings=(PartitionSpec("d"), None))
    assert str(program.out_shardings[0]) == '[{"d", ?}]'
    assert program.out_shardings[1] is None
    assert program.in_shardings[0]["b"] is None
    assert str(program.in_shardings[1]) == "[]"


def test_a_constraint_of_another_rank_names_its_line() -> None:
    said = refused(fn=lambda p, x: sw.constrain(x, '[{"d"}]'))
    assert said.startswith("constrain, ")
    assert "test_partition.py" in said
    assert "there must be one dimension sharding for each dimension of the tensor" in said


def test_a_constraint_that_contradicts_a_manual_computation() -> None:
    devices = jax.sharding.AbstractMesh((4, 2), ("d", "t"))
    spec = PartitionSpec("d", None)
    inner = jax.shard_map(
        lambda x: sw.constrain(x, '[{"d"}, {}]'),
        mesh=devices,
        in_specs=spec,
        out_specs=spec,
        axis_names={"d"},
    )
    said = refused(fn=inner, avals=(shaped(8, 16),), in_shardings=None)
    assert "a constraint in a shard_map must not use the manual axes" in said
    assert 'got: [{"d"}, {}] where d is manual' in said
    assert said.startswith("constrain, ")
    assert "test_partition.py" in said.splitlines()[0]


def test_what_has_no_rule_is_said_and_replicated() -> None:
    def factored(x: Any) -> Any:
        return jax.pure_callback(lambda x: x, shaped(8, 8), x)

    program = sw.partition(factored, shaped(8, 8), mesh=MESH, in_shardings='[{"d"}, {}]')
    assert program.warnings
    for text in program.warnings:
        assert re.fullmatch(
            r"[\w/.]*test_partition.py:\d+: \w+ has no rule: its operands are replicated", text
        )
    said = refused(fn=factored, avals=(shaped(8, 8),), in_shardings=None, strict=True)
    assert said.startswith("fn: with strict=True every primitive must have a rule\n")


def test_nothing_is_said_of_what_no_result_uses() -> None:
    """Neither outside nor in a loop, nor is it an error with `strict`."""

    def called(x: Any) -> Any:
        return jax.pure_callback(lambda x: x, shaped(8, 8), x)

    def body(x: Any, _: Any) -> Any:
        called(x)
        return x + 1, None

    def unused(x: Any) -> Any:
        called(x)
        return jax.lax.scan(body, x, None, length=2)[0]

    program = sw.partition(unused, shaped(8, 8), mesh=MESH, strict=True)
    assert not program.warnings
    used = sw.partition(lambda x: called(unused(x)), shaped(8, 8), mesh=MESH)
    (said,) = used.warnings
    assert said.endswith(" has no rule: its operands are replicated")


def test_what_gives_nothing_is_left_out_and_said() -> None:
    def printed(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x * 2

    x = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    (said,) = sw.partition(printed, x, mesh=MESH).warnings
    assert re.fullmatch(
        r"[\w/.]*test_partition.py:\d+: debug_\w+ returns no value and is left out", said
    )


def test_a_value_that_is_not_there() -> None:
    program = sw.partition(mlp, *AVALS, mesh=MESH, in_shardings=GIVEN)
    with pytest.raises(sw.InputError) as caught:
        program.why("tanh_7")
    assert str(caught.value) == (
        "value: the program has no value with this name\ngot: tanh_7\n"
        "expected: one of p_w1, p_w2, x, h_dot, h, out"
    )
    with pytest.raises(sw.InputError, match=r"expected: one of p_w2, p_w1$"):  # closest first
        program.why("w2")
