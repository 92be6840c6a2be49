"""The fuzz: its reference and generator, planted faults that it finds, and cases that it runs.

`python -m tests.fuzz` runs more of them, and single ones by id.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fuzz.case import Case, JaxUse, Side, TorchUse
from fuzz.features import features
from fuzz.generate import case_of
from fuzz.job import Job
from fuzz.pool import run_all
from fuzz.reference import Array, groups, owners
from fuzz.refusals import PENDING
from fuzz.values import check_target, given, pulled
from sweeps import sampled

from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.ir import Mesh

MANY = range(300)


def need(kind: str) -> None:
    """Skip without what workers of a kind import."""
    for name in ("torch", "triton") if kind == "torch" else ("jax",):
        pytest.importorskip(name)


def test_an_id_names_one_case() -> None:
    assert [case_of(number) for number in MANY] == [case_of(number) for number in MANY]
    assert len({replace(case_of(number), id=0) for number in MANY}) > 295


@pytest.mark.parametrize(
    ("extent", "sizes", "split", "expected"),
    [
        (5, (2, 2), "flat", [0, 0, 1, 1, 2]),
        (5, (2, 2), "nested", [0, 0, 1, 2, 3]),
        (2, (4,), "flat", [0, 1]),
        (7, (2, 3), "nested", [0, 0, 1, 1, 3, 4, 5]),
        (3, (), "flat", [0, 0, 0]),
    ],
)
def test_who_owns_an_element(
    extent: int, sizes: tuple[int, ...], split: str, expected: list[int]
) -> None:
    assert owners(extent, sizes, split) == expected


OF_VALUES = [
    number
    for number in range(200)
    if "unreduced" not in case_of(number).source.sharding + case_of(number).target.sharding
]


@pytest.mark.parametrize("number", OF_VALUES)
def test_two_references_agree(number: int) -> None:
    """That of the fuzz with the oracle that `verify` judges by: shards and padded arrays."""
    case = case_of(number)
    bits = given(case, 0)
    for side in (case.source, case.target):
        mesh = Mesh(side.axes, side.device_ids)
        other, own = placement(mesh.sharding(side.sharding), side.split), Array.of(case, side)
        assert own.local_shape == oracle.largest(other, case.shape)
        padded = oracle.padded(other, bits, 0)
        assert own.padded_shape == padded.shape
        np.testing.assert_array_equal(padded[own.slots()], bits)
        for device, shard in oracle.shards(other, bits).items():
            np.testing.assert_array_equal(own.shard(device, bits), shard)


EAGER = JaxUse(
    x64=False, axis_types="Auto", set_mesh="", call="eager", derivative="", batch=0,
    other_axes=False, placed=True, names_target=True, devices=tuple(range(6)),
)  # fmt: skip


def plain(backend: str, door: str = "local") -> Case:
    """A transposition of an uneven matrix over six devices."""
    axes, ids = (("x", 2), ("y", 3)), tuple(range(6))
    source = Side(axes, ids, '[{"x"}, {"y"}]', "flat")
    target = Side(axes, ids, '[{"y"}, {"x"}]', "flat")
    use = TorchUse(door) if backend == "triton_gpu" else EAGER
    if backend == "jax_xla":
        use = replace(EAGER, derivative="vjp")
    return Case(0, backend, (5, 8), "float32", source, target, "direct", None, use)


MOVED = "        y = moved(shard, call)\n"
LOST = f"{MOVED}        y = jnp.where(jnp.isnan(y), jnp.nan, y)\n"


FAULTS = (
    ("jax_xla", "at(self.writes, me)", "at(self.reads, me)", "result"),
    ("jax_xla", "update_slice(y, box, start)", "update_slice(y, box + 0 * box, start)", "result"),
    ("jax_xla", "    return x_bar\n", "    return -x_bar\n", "cotangent"),
    ("pallas_tpu", MOVED, LOST, "result"),
    ("pallas_tpu", "int32(low - start) for", "int32(low - start + 1) for", "result"),
    ("pallas_tpu", "    each(count, leave)\n", "", "has non-zero count"),
    (
        "triton_gpu",
        "read_once(source, inside), mask",
        "read_once(source, inside) + 0.0, mask",
        "result",
    ),
    ("triton_gpu", "write_row=4,", "write_row=8,", "memory"),
    (
        "triton_gpu",
        "read_once(source, inside), mask=inside)",
        "read_once(source, inside))",
        "memory outside",
    ),
)
"""What of a module is replaced by what, and how it shows: elements in the wrong place, bits that
arithmetic loses, cotangents, and what memory shows."""

FAULTS_OF_DOORS = (
    ("group", "ends = self._source(number), self._target(number)", "ends = self._target(number),"
     " self._target(number)", "call 0"),
    ("group", "into, size, 0, number, start)", "into, size, 0, number, 0)", "call 0"),
    ("dtensor", "DTensors(_HOST, (0, 1), (1, 0)", "DTensors(_HOST, (0, 1), (0, 1)", "Shard(dim=0)"),
)  # fmt: skip
"""Faults of Triton modules that only show through the named door."""


@pytest.mark.parametrize("kind", sampled(["jax", "torch"], "torch"))
def test_planted_faults_are_found(kind: str) -> None:
    need(kind)
    backends = ["triton_gpu"] if kind == "torch" else ["jax_xla", "pallas_tpu"]
    jobs, expected = [Job(plain(backend)) for backend in backends], [("ok", "")] * len(backends)
    for number, (backend, old, new, says) in enumerate(FAULTS, 1):
        if backend in backends:
            jobs.append(Job(replace(plain(backend), id=number), (old, new)))
            expected.append(("wrong", says))
    for made, (verdict, says) in zip(run_all(jobs, 1), expected, strict=True):
        assert made.verdict == verdict, made
        assert says in made.detail, made


@pytest.mark.slow
@pytest.mark.parametrize("door", ["group", "dtensor"])
def test_faults_of_doors_are_found(door: str) -> None:
    need("torch")
    case, faults = plain("triton_gpu", door), [f for f in FAULTS_OF_DOORS if f[0] == door]
    planted = [Job(replace(case, id=k), fault[1:3]) for k, fault in enumerate(faults, 1)]
    whole, *made = run_all([Job(case), *planted], 1)
    assert whole.verdict == "ok", whole
    for found, (*_, says) in zip(made, faults, strict=True):
        assert found.bad, found
        assert says in found.detail, found


def test_what_is_pending_is_not_there() -> None:
    """A feature that has come is taken off the list."""
    jobs = [
        Job(next(case for case in map(case_of, range(3000)) if pending_for(case, feature)))
        for feature in PENDING
    ]
    assert {each.verdict for each in run_all(jobs, 1)} <= {"pending"}


def pending_for(case: Case, feature: str) -> bool:
    """Whether this feature is the only one of a case that could be refused."""
    others = {*PENDING, "set_mesh", "axes Explicit", "unreduced summed", "order another"}
    return features(case) & others == {feature}


def sums(source: str, target: str) -> Case:
    """A case of partial sums over four devices."""
    axes, ids = (("x", 2), ("y", 2)), tuple(range(4))
    sides = (Side(axes, ids, text, "flat") for text in (source, target))
    return Case(0, "jax_xla", (3,), "int8", *sides, "auto", None, EAGER)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("[{}]", '[{"x"}]', (((0,), (0,)),)),
        ('[{}], unreduced={"x"}', '[{}], unreduced={"x"}', (((0,), (0,)), ((1,), (1,)))),
        ('[{}], unreduced={"x"}', "[{}]", (((0, 1), (0,)),)),
        ('[{}], unreduced={"y", "x"}', '[{}], unreduced={"x"}', (((0, 1), (0,)), ((2, 3), (1,)))),
        ("[{}]", '[{}], unreduced={"x"}', (((0,), (0, 1)),)),
        ('[{}], unreduced={"x"}', '[{}], unreduced={"y", "x"}',
         (((0,), (0, 1)), ((1,), (2, 3)))),
    ],
)  # fmt: skip
def test_which_terms_belong_together(source: str, target: str, expected: object) -> None:
    assert groups(sums(source, target)) == expected


def test_sums_and_holders_are_judged() -> None:
    """A sum in one term is right, a value in two is not; a cotangent goes to every term."""
    summed = sums('[{}], unreduced={"x"}', "[{}]")
    terms = np.array([[1, 250, 3], [1, 10, 3]], np.uint8)
    check_target(summed, terms, np.array([2, 4, 6], np.uint8), "sum")
    np.testing.assert_array_equal(pulled(summed, terms[0]), terms[[0, 0]])
    new, zero = sums("[{}]", '[{}], unreduced={"x"}'), np.zeros(3, np.uint8)
    check_target(new, terms[0], np.stack([zero, terms[0]]), "new")
    check_target(new, terms[0], np.array([[1, 0, 3], [0, 250, 0]], np.uint8), "new")
    for wrong in ([zero, zero], [terms[0], terms[0]], [terms[0], zero + 1]):
        with pytest.raises(Exception, match="new, terms"):
            check_target(new, terms[0], np.stack(wrong), "new")
