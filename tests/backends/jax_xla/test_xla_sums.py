"""Sums of partial values as XLA modules: what is given, what is added, derivatives, refusals."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from cases import describe, kept_pairs, kept_reshard, random_sharding
from lone import alone
from running import verified
from sessions import session
from strategies import exactly, message
from sums import ids_differ, reduction
from sweeps import sampled
from test_xla_steps import SIX, check, make, of_steps

import shardwright as sw
from shardwright.codegen.backends.jax_steps.changes import MatchedChanges, StepChange
from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.plan import Plan


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [*range(24), *range(200, 320)])
def test_sums_of_random_reshards(seed: int, tmp_path: Path) -> None:
    """Any axes unreduced, extents that divide and that do not, scalars."""
    check(of_steps([reduction(seed)], seed), tmp_path)


SAME_SIZE = {6: [{"p": 6}, {"y": 3, "x": 2}], 8: [{"p": 2, "q": 4}, {"x": 4, "y": 2}, {"p": 8}]}


def elsewhere(seed: int) -> Reshard:
    """A sum whose target is on a mesh of other axes, often of the devices in another order."""
    rng, given = random.Random(seed), reduction(seed)
    count = given.source.mesh.size
    order = rng.sample(range(count), count) if seed % 2 else range(count)
    mesh = Mesh(rng.choice(SAME_SIZE[count]), order)
    target = random_sharding(rng, mesh, len(given.shape))
    splits = rng.choice(["flat", "nested"]), rng.choice(["flat", "nested"])
    return Reshard(given.shape, "int16", given.source, target, *splits)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(16))
def test_sums_to_other_meshes(seed: int, tmp_path: Path) -> None:
    check(of_steps([elsewhere(seed)], seed), tmp_path)


KEPT = (
    make('[{}, {"x"}], unreduced={"y"}', '[{"x"}, {}], unreduced={"y":(1)2}'),
    make('[{}, {}], unreduced={"x", "y"}', '[{"y"}, {}], unreduced={"x"}', (7, 3)),
    make('[{}, {"x"}], unreduced={"y"}', '[{"x"}, {}], unreduced={"y"}', (7, 3)),
)


@pytest.mark.parametrize("reshard", sampled(KEPT, KEPT[0]), ids=describe)
def test_axes_that_stay_unreduced(reshard: Reshard, tmp_path: Path) -> None:
    """Some or all; their terms are terms of the result, derivatives too."""
    pytest.importorskip("jax")
    sw.emit(reshard, backends=("jax_xla",), gradient=True).write(tmp_path / "kept")
    (report,) = verified(tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"derivative", "backward"} <= set(report.checks)


CUBE = {"x": 2, "y": 2, "z": 2}
REPRODUCER = make(
    '[{"y", "z"}, {}], unreduced={"x"}', '[{}, {"y"}], unreduced={"x"}', mesh=Mesh(CUBE)
)


def direct(reshards: list[Reshard]) -> list[Plan]:
    """The exchanges of reshards, but for those that `jax_xla` refuses: to other devices."""
    plans = [plan(reshard, "direct") for reshard in reshards]
    return [made for made in plans if not ids_differ(made.reshard)]


def test_an_axis_that_moves_from_within_a_longer_run_beside_one_that_stays(tmp_path: Path) -> None:
    """A dimension gains an axis from within the longer run that another loses."""
    check(direct([REPRODUCER]), tmp_path)


PAIRS = kept_pairs(CUBE, (16, 8))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_an_axis_that_stays_unreduced_beside_any_pair(number: int, tmp_path: Path) -> None:
    check(direct([PAIRS[number]]), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [*range(32), *range(200, 400)])
def test_random_reshards_of_terms(seed: int, tmp_path: Path) -> None:
    """Some or all axes and sub-axes stay unreduced, on one mesh and from one to another, by both
    strategies."""
    reshards = [kept_reshard(seed)]
    check(direct(reshards) + of_steps(reshards, seed), tmp_path)


def test_terms_are_the_same_by_the_names_of_axes(tmp_path: Path) -> None:
    """On a mesh of the same axes in another order, of the same devices in another."""
    first, second = Mesh({"x": 2, "y": 3}), Mesh({"y": 3, "x": 2})
    turned = Mesh({"x": 2, "y": 3}, (5, 3, 1, 4, 2, 0))
    both = '[{}], unreduced={"x", "y"}'
    reshards = [
        Reshard((5,), "float16", first.sharding(both), mesh.sharding(both))
        for mesh in (first, second, turned)
    ]
    check(direct(reshards), tmp_path)
    one = second.sharding('[{}], unreduced={"y"}')
    assert message(lambda: plan(Reshard((5,), "int8", first.sharding(both), one))) == exactly(
        """
        target_mesh: axes that stay unreduced must keep their device order
        got: a different order of devices, and [{}], unreduced={"y"}
        expected: the source's order of devices, then a second reshard to the other order
        """
    )


APART = [
    # gained by one dimension, lost by another, and whether one collective each makes it
    (((4, 2),), ((1, 2),), True),
    (((2, 2),), ((2, 2),), True),
    (((2, 2),), ((1, 4),), False),
    (((1, 2),), ((4, 2), (1, 2)), False),
    (((3, 2),), ((2, 3),), False),
    (((3, 2),), ((1, 2),), False),
    (((2, 4), (12, 2)), ((1, 2),), True),
]


def test_one_dimension_gains_what_several_lose() -> None:
    """The major digits first; what is left over is gathered."""
    lost = [StepChange(n, ((low, 2),), False, True) for n, low in enumerate((1, 2, 4))]
    moves = MatchedChanges.of([*lost, StepChange(3, ((1, 2), (4, 2)), True, True)])
    assert moves == MatchedChanges((), ((3, lost[0]), (3, lost[2])), (lost[1],))
    joined = MatchedChanges.of([*lost, StepChange(3, ((1, 8),), True, True)])
    assert joined == MatchedChanges((), ((3, lost[2]), (3, lost[1]), (3, lost[0])), ())


@pytest.mark.parametrize(("gained", "lost", "apart"), APART)
def test_changes_that_are_collectives(gained: Digits, lost: Digits, apart: bool) -> None:
    changes = [StepChange(0, lost, False, True), StepChange(1, gained, True, True)]
    moves = MatchedChanges.of(changes)
    assert (moves is not None) == apart
    if moves is not None:
        counts = len(moves.slices), len(moves.all_to_alls), len(moves.all_gathers)
        assert counts == ((0, 1, 0) if gained == lost else (1, 0, 1))


@pytest.mark.exhaustive
def test_sums_of_every_dtype(tmp_path: Path) -> None:
    """A reduce-scatter, of padded rows too, an all-reduce, and a sum by boxes."""
    plans, terms = [], ', unreduced={"y"}'
    asked = (
        ('[{}, {"x"}]', '[{"y"}, {"x"}]', 9),
        ('[{}, {"x"}]', '[{}, {"x"}]', 9),
        ('[{}, {"x"}]', '[{"y"}, {"x"}]', 7),
        ('[{"x"}, {}]', '[{"x", "y"}, {}]', 7),
    )
    for dtype in (dtype for dtype in DTYPES if dtype != "bool"):
        for source, target, rows in asked:
            plans.append(plan(make(source + terms, target, (rows, 6), dtype, SIX)))
    ops = {made.ops.split(", ")[0] for made in plans}
    assert {"reduce_scatter", "all_reduce"} <= ops
    check(plans, tmp_path)


def test_values_of_sums_are_exact() -> None:
    """Whatever the order of addition, every dtype and up to 64 terms."""
    mesh = Mesh({"x": 64})
    source = placement(mesh.sharding('[{}], unreduced={"x"}'), "flat")
    terms = oracle_terms.target_of_terms(source, placement(mesh.sharding('[{"x"}]'), "flat"))
    assert terms == (0,) * 64
    for dtype, most in (("float8_e5m2", 8), ("float8_e4m3fn", 16), ("bfloat16", 256)):
        seen = np.zeros(64, dtype=bool)
        planes = []
        for parts_, sums in oracle_terms.sums((3, 5), dtype, terms):
            assert np.abs(parts_).sum(axis=0).max() <= 2 * most
            assert np.abs(parts_).max() <= most
            assert (np.count_nonzero(parts_, axis=0) <= 2).all()
            np.testing.assert_array_equal(parts_.sum(axis=0), sums[0])
            seen |= parts_.any(axis=(1, 2))
            planes.append(sums.ravel())
        assert seen.all()
        assert len(set(zip(*map(np.ndarray.tolist, planes), strict=True))) == 15


def test_terms_in_a_module(tmp_path: Path) -> None:
    """What a reader of the docstring is told, and the shapes that go with it."""
    made = plan(make('[{}, {"x"}], unreduced={"y"}', '[{"y":(1)2}, {"x"}]', (5, 6)))
    text = alone(made, "jax_xla")
    assert "PADDED_SOURCE_SHAPE = (4, 5, 6)" in text
    assert "PADDED_TARGET_SHAPE = (6, 6)" in text
    assert 'P(("y:(1)2", "y:(2)2"), None, "x")' in text
    assert "Dimension 0 of the source stands for its unreduced axes" in text
    assert f"Memory: {made.prediction.peak_bytes} bytes of the tensor" in text  # type: ignore[union-attr]


def test_booleans_have_no_sum() -> None:
    source, target = '[{"x"}, {}], unreduced={"y"}', '[{"x"}, {}]'
    assert message(lambda: make(source, target, dtype="bool")) == exactly(
        """
        dtype: the dtype of partial sums must support addition, which booleans do not
        got: bool
        expected: an integer or a floating dtype, such as int8; or unreduced=max{…}
        """
    )


def test_sums_among_other_devices() -> None:
    """Collectives are among one set of devices; an exchange is not."""
    source = Mesh({"y": 2}).sharding('[{}], unreduced={"y"}')
    target = Mesh({"y": 2}, [2, 3]).sharding('[{"y"}]')
    reshard = sw.Reshard((8,), "float32", source, target)
    assert sw.plan(reshard).ops == "exchange"
    assert message(lambda: sw.plan(reshard, backends=("jax_xla",))) == exactly(
        """
        target: partial sums can be reduced only within one set of devices
        got: meshes of 2 and 2 devices that share 0
        expected: a reshard to the source's devices, then another between the meshes
        """
    )


@pytest.mark.parametrize(
    ("source", "target", "received", "total"),
    [
        # Of 8 terms of 64 elements, for one device each, for all, and for two of each half.
        ('[{}], unreduced={"x"}', '[{"x"}]', 56, 448),
        ('[{}], unreduced={"x"}', "[{}]", 112, 896),
        ('[{}], unreduced={"x":(1)4}', '[{"x":(1)4}]', 32, 256),
    ],
)
def test_the_least_that_sums_take(source: str, target: str, received: int, total: int) -> None:
    """As many transfers of every element as terms without the first, and as copies."""
    mesh = Mesh({"x": 8})
    made = sw.plan(sw.Reshard((64,), "int8", mesh.sharding(source), mesh.sharding(target)))
    traffic = made.traffic
    assert (traffic.bound_received_max, traffic.bound_received_total) == (received, total)
    assert traffic.bound_sent_max == total // 8
    assert traffic.received_total >= total
    assert traffic.received_max >= received


def test_a_bundle_reduces_terms_in_one_way() -> None:
    reshard = make('[{"x"}, {}], unreduced={"y"}', '[{"x"}, {}]')
    assert message(lambda: sw.emit(reshard, backends=("pallas_tpu", "jax_xla"))) == exactly(
        """
        backends: all backends of a bundle must reduce partial sums in the same way
        got: pallas_tpu (direct), jax_xla (basis)
        expected: a separate bundle for each backend
        """
    )


def test_the_backward_of_a_sum_is_a_copy() -> None:
    """The derivative of a reduce-scatter is an all-gather to every term."""
    own, back = parts(
        plan(make('[{}], unreduced={"y"}', '[{"y"}]', (8,))), "jax_xla", "c", gradient=True
    )
    assert "psum_scatter" in own.text
    assert back.file == "jax_xla_backward.py"
    assert {step.op for step in back.plan.steps} == {"all_gather"}
    assert "PADDED_TARGET_SHAPE = (4, 8)" in back.text
    assert is_floating(back.plan.reshard.dtype)


GRADIENTS = """
from pathlib import Path
import jax, numpy as np
from jax.sharding import AxisType, Mesh
from shardwright.codegen.checks.load import load

m = load(Path(path))
numbers = np.random.default_rng(0)
names, sizes = ("x", "y"), (2, 4)


def array(shape, sharding):
    return jax.device_put(numbers.integers(-4, 5, shape).astype(np.float32), sharding)


def check(kinds):
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(sizes), names, axis_types=(kinds,) * 2)
    x = array(m.PADDED_SOURCE_SHAPE, m.source_sharding(mesh))
    w = array(m.PADDED_TARGET_SHAPE, m.target_sharding(mesh))
    f = lambda x: m.reshard(x, mesh)
    total, every = np.asarray(x).sum(0), np.broadcast_to(w, x.shape)
    pull = lambda w: jax.vjp(f, x)[1](w)[0]
    for way in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(way(f)(x), total)
        np.testing.assert_array_equal(way(lambda t: jax.jvp(f, (x,), (t,))[1])(x), total)
        np.testing.assert_array_equal(way(lambda t: jax.linearize(f, x)[1](t))(x), total)
        if way is jax.jit or kinds == AxisType.Auto:  # JAX transposes no device_put to set axes
            np.testing.assert_array_equal(way(lambda w: jax.linear_transpose(f, x)(w)[0])(w), every)
        np.testing.assert_array_equal(way(pull)(w), every)
        np.testing.assert_array_equal(way(lambda t: jax.vjp(pull, w)[1](t)[0])(x), total)
        gradient = way(jax.grad(lambda x: (w * f(x)).sum()))(x)
        np.testing.assert_array_equal(gradient, every)
        assert gradient.sharding.is_equivalent_to(x.sharding, x.ndim), (gradient.sharding, way)


mesh = Mesh(np.array(jax.devices()[:8]).reshape(sizes), names, axis_types=(AxisType.Explicit,) * 2)
check(AxisType.Auto)
with jax.set_mesh(mesh):
    check(AxisType.Explicit)
print("ok")
"""


def test_derivatives_of_a_sum(tmp_path: Path) -> None:
    """`grad`, `jvp`, `linearize`, `linear_transpose`, second ones; in a jit and not; axes of both
    types."""
    pytest.importorskip("jax")
    made = plan(make('[{}, {"x"}], unreduced={"y"}', '[{"y"}, {"x"}]'))
    for part in parts(made, "jax_xla", "shardwright emit", gradient=True, single_file=True):
        (tmp_path / part.file).write_text(part.text)
    assert session().run(GRADIENTS, path=str(tmp_path / "jax_xla.py")) == "ok\n"


def test_terms_among_other_devices_are_refused() -> None:
    """What stays unreduced is not moved between sets of devices."""
    source = Mesh({"x": 2, "y": 2}).sharding('[{"x"}], unreduced={"y"}')
    target = Mesh({"y": 2, "z": 2}, range(4, 8)).sharding('[{"z"}], unreduced={"y"}')
    reshard = Reshard((8,), "int8", source, target)
    assert message(lambda: sw.emit(reshard, backends=("jax_xla",))) == exactly(
        """
        target_mesh: jax_xla can reduce partial sums only within one set of devices
        got: <["y"=2, "z"=2], device_ids=[4, 5, 6, 7]>
        expected: the devices of the source, in any order
        """
    )
