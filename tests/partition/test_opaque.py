"""Calls that modules hold as StableHLO: Pallas kernels, whole, in `shard_map`, and split as the
`sharding_rule` of `custom_partitioning` says."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from feature_cases import W, X, doubled_by_a_kernel, of, partitioned, product_by_a_kernel
from jax import lax
from jax.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from jax.experimental.pallas import pallas_call

import shardwright as sw
from shardwright.codegen.backends.jax_spmd.opaque import stored_calls

MESH = sw.Mesh({"d": 4, "t": 2})
ROWS = '[{"d"}, {}]'


def split(x: Any) -> Any:
    """A kernel that makes two dimensions of one."""

    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...].reshape(y.shape)

    shape = jax.ShapeDtypeStruct((2, x.shape[0] // 2, *x.shape[1:]), x.dtype)
    return pallas_call(kernel, shape, interpret=True)(x)


def halved(x: Any) -> Any:
    """A kernel whose rows are half as many."""

    def kernel(x: Any, y: Any) -> None:
        y[...] = x[::2]

    shape = jax.ShapeDtypeStruct((x.shape[0] // 2, *x.shape[1:]), x.dtype)
    return pallas_call(kernel, shape, interpret=True)(x)


def made(fn: Any, *avals: Any, given: Any = ROWS) -> Any:
    return sw.partition(fn, *avals, mesh=MESH, in_shardings=(given,) * len(avals))


def by_types(mesh: Any, inputs: Any, outputs: Any) -> Any:
    """A rule that a function makes of the types."""
    assert mesh.shape == {"d": 4, "t": 2}
    return " ".join(f"a{n}" for n in range(inputs[0].rank)) + " -> ... b", {}


@pytest.mark.parametrize(
    ("fn", "rule", "factors", "said"),
    [
        (doubled_by_a_kernel, "... j -> ... j", {}, "([i, j])->([i, j]) {i=8, j=16}"),
        (
            doubled_by_a_kernel,
            "i j -> i j",
            {"need_replication_factors": ("i",)},
            "need_replication={i}",
        ),
        (doubled_by_a_kernel, "i j -> i j", {"permutation_factors": ("j",)}, "permutation={j}"),
        (split, "(a b) c -> a b c", {}, "([ij, k])->([i, j, k]) {i=2, j=4, k=16}"),
        (halved, "i j -> i j", {}, "([i, j])->([i, j]) {i=4, j=16} need_replication={i}"),
        (
            doubled_by_a_kernel,
            SdyShardingRule((ArrayMapping(BATCHING, "j"),), (ArrayMapping(BATCHING, "j"),)),
            {},
            "([i, j])->([i, j]) {i=8, j=16}",
        ),
        (
            split,
            SdyShardingRule(
                (ArrayMapping(CompoundFactor("a", "b"), "c"),), (ArrayMapping("a", "b", "c"),)
            ),
            {},
            "([ij, k])->([i, j, k]) {i=2, j=4, k=16}",
        ),
        (doubled_by_a_kernel, by_types, {}, "([i, j])->([k, l]) {i=8, j=16, k=8, l=16}"),
    ],
)
def test_rules_are_read(fn: Any, rule: Any, factors: Any, said: str) -> None:
    assert said in str(made(partitioned(fn, fn, rule, **factors), X))


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_a_kernel_with_a_rule_is_split(mode: str) -> None:
    product = partitioned(product_by_a_kernel, product_by_a_kernel, "i k, k j -> i j")
    sides = (ROWS, '[{}, {"t"}]')
    program = sw.partition(product, X, W, mesh=MESH, in_shardings=sides, mode=mode)
    assert (program.communications, program.warnings) == ((), ())
    (call,) = stored_calls(program).values()
    loaded = jax.export.deserialize(bytearray(call.data))
    assert [aval.shape for aval in loaded.in_avals] == [(2, 16), (16, 4)]


def test_a_kernel_without_a_rule_runs_whole() -> None:
    program = made(doubled_by_a_kernel, X)
    line = inspect.getsourcelines(doubled_by_a_kernel)[1] + 1
    assert program.warnings == (
        f"tests/feature_cases.py:{line}: pallas_call has no rule: its operands are replicated",
    )
    assert program.bytes_received == 8 * 16 * 4 * 3 // 4


def test_equal_calls_are_stored_once() -> None:
    double = partitioned(doubled_by_a_kernel, doubled_by_a_kernel, "i j -> i j")
    program = made(lambda x, y: (double(jnp.sin(double(x))), double(y), double(y[:, :4])), X, X)
    text = sw.emit(program).files("made")["jax_spmd.py"]
    assert [call.name for call in dict.fromkeys(stored_calls(program).values())] == [
        "doubled_by_a_kernel",
        "doubled_by_a_kernel_2",
    ]
    assert text.count("export.deserialize(") == 2


def test_calls_say_nothing_of_files() -> None:
    data = [call.data for call in stored_calls(made(doubled_by_a_kernel, X)).values()]
    assert [b"feature_cases" in each for each in data] == [False]


def refused(fn: Any, *avals: Any) -> str:
    with pytest.raises(sw.InputError) as caught:
        sw.emit(made(fn, *avals))
    return str(caught.value)


def test_a_rule_of_other_ranks_is_refused() -> None:
    said = refused(lambda x: partitioned(doubled_by_a_kernel, doubled_by_a_kernel, "i -> i")(x), X)
    head, got, expected = said.splitlines()
    assert head == "fn: sharding_rule must fit the function under custom_partitioning"
    assert got.startswith("got: SdyShardingRule(")
    assert expected == "expected: 2 dimensions for [8, 16]; the rule has 1"


@pytest.mark.parametrize(
    ("local", "kept", "why"),
    [
        (lambda x: x[:1], True, "ValueError: its shards are "),
        (doubled_by_a_kernel, False, "ValueError: its partition function asks for "),
        (lambda x: lax.psum(x, "d"), True, "NameError: "),
    ],
)
def test_parts_that_do_not_fit_are_refused(local: Any, kept: bool, why: str) -> None:
    def partition(mesh: Any, args: Any, result: Any) -> Any:
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return mesh, local, result.sharding if kept else whole, (args[0].sharding,)

    double = custom_partitioning(doubled_by_a_kernel)
    double.def_partition(partition, sharding_rule="i j -> i j")
    head, got, expected = refused(lambda x: double(x), of(8, 16)).splitlines()
    assert head == "fn: the module must hold this call as StableHLO, for shards, and cannot"
    assert got.startswith("got: doubled_by_a_kernel, tests/partition/test_opaque.py:")
    assert why in got
    assert expected == (
        "expected: a pallas_call without effects, or a partition function that keeps the "
        "shardings and has no collectives"
    )
