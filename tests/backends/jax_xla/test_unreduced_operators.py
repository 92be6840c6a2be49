"""Axes unreduced by max and min: text, rules, plans, modules against the oracle, refusals."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import kept_reshard
from running import reports_of, verified
from sessions import session
from simulate import check as check_plan
from strategies import exactly, message
from sums import reduction
from test_xla_steps import SIX, check, make, of_steps
from test_xla_sums import direct

import shardwright as sw
from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.spec.interop import to_named_sharding
from shardwright.ir import AxisRef, DimSharding, Mesh, Reshard, Sharding
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.placement import places_equally

GRID = Mesh({"x": 2, "y": 4})
EXTREMA = ("max", "min")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('[{}], unreduced=max{"x"}', '[{}], unreduced=max{"x"}'),
        ('[{}], unreduced = min {"y", "x"}', '[{}], unreduced=min{"x", "y"}'),
        ('[{}], unreduced=sum{"x"}', '[{}], unreduced={"x"}'),
        ("[{}], unreduced=max{}", "[{}]"),
        (
            '[{"x"}], unreduced=min{"y":(2)2}, replicated={"y":(1)2}',
            '[{"x"}], replicated={"y":(1)2}, unreduced=min{"y":(2)2}',
        ),
    ],
)
def test_text(text: str, canonical: str) -> None:
    """Read, printed, read again: as a sharding, and as Shardy's attribute."""
    sharding = GRID.sharding(text)
    assert str(sharding) == canonical
    assert GRID.sharding(canonical) == sharding
    assert GRID.sharding(sharding.to_sdy()) == sharding


def test_an_operator_of_other_axes() -> None:
    assert message(lambda: GRID.sharding('[{}], replicated=max{"x"}')) == exactly(
        """
        only unreduced axes may have an operator
          [{}], replicated=max{"x"}
                           ^^^
        got: replicated=max{…}
        expected: replicated={…}
        """
    )


def test_an_unknown_operator() -> None:
    assert message(lambda: GRID.sharding('[{}], unreduced=mean{"x"}')) == exactly(
        """
        the text is not a sharding
          [{}], unreduced=mean{"x"}
                          ^^^^
        got: mean
        expected: 'sum', 'max', 'min' or '{'
        """
    )
    dims, axes = (DimSharding(),), (AxisRef("x"),)
    made = lambda: Sharding(GRID, dims, (), axes, "mean")  # type: ignore[arg-type] # noqa: E731
    assert message(made) == exactly(
        """
        operator: unknown operator of unreduced axes
        got: mean
        expected: one of sum, max, min
        """
    )


def test_placements_differ_by_operator() -> None:
    most, least = (GRID.sharding(f'[{{}}], unreduced={op}{{"x"}}') for op in EXTREMA)
    assert places_equally(most, most)
    assert not places_equally(most, least)


@pytest.mark.parametrize(("operator", "said"), [("max", "max"), ("sum", "")])
def test_the_operator_of_axes_that_stay(operator: str, said: str) -> None:
    """Also where other axes are reduced; one sharding has one operator."""
    source = GRID.sharding(f'[{{}}], unreduced={operator}{{"x", "y"}}')
    target = GRID.sharding('[{}], unreduced=min{"x"}')
    assert message(lambda: Reshard((8,), "int8", source, target)) == exactly(
        f"""
        target: axes that stay unreduced must keep their operator
        got: [{{}}], unreduced=min{{"x"}}, from [{{}}], unreduced={said}{{"x", "y"}}
        expected: unreduced={said}{{…}}
        """
    )


def test_a_partition_spec_has_sums_only() -> None:
    pytest.importorskip("jax")
    sharding = GRID.sharding('[{}], unreduced=max{"x"}')
    assert message(lambda: to_named_sharding(sharding)) == exactly(
        """
        a PartitionSpec can have unreduced axes for sums only
        got: [{}], unreduced=max{"x"}
        expected: unreduced={…}
        """
    )


def with_operator(reshard: Reshard, operator: str, dtype: str | None = None) -> Reshard:
    """The reshard with another operator on both sides."""
    sides = (replace(side, operator=operator) for side in (reshard.source, reshard.target))
    source, target = sides
    return replace(reshard, source=source, target=target, dtype=dtype or reshard.dtype)


def extremum(seed: int) -> Reshard:
    """A random maximum or minimum, some of it kept, of any dtype."""
    rng = random.Random(seed)
    return with_operator(reduction(seed), rng.choice(EXTREMA), rng.choice(list(DTYPES)))


@pytest.mark.parametrize("seed", range(15))
def test_plans_of_extrema(seed: int) -> None:
    """Every step of a plan's JSON, carried out: `reduce` says how transfers combine."""
    reshard = replace(extremum(seed), dtype="int64")
    check_plan(plan(reshard, "basis", topology="switch"))


def test_json_says_the_operator() -> None:
    for operator in EXTREMA:
        made = plan(make(f'[{{}}, {{"x"}}], unreduced={operator}{{"y"}}', '[{"y"}, {"x"}]'))
        (step,) = made.to_dict()["steps"]
        assert {row["reduce"] for row in step["transfers"]} == {operator}


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [*range(32), *range(200, 400)])
def test_extrema_of_random_reshards(seed: int, tmp_path: Path) -> None:
    """Any axes unreduced, extents that divide and that do not, scalars, every dtype."""
    check(of_steps([extremum(seed)], seed), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_extrema_that_stay(seed: int, tmp_path: Path) -> None:
    """Nothing is reduced: every bit pattern of every term arrives."""
    reshards = [with_operator(kept_reshard(seed), EXTREMA[seed % 2])]
    check(direct(reshards) + of_steps(reshards, seed), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operator", ["max", "min"])
def test_extrema_of_every_dtype(operator: str, tmp_path: Path) -> None:
    """An all-to-all and a maximum of what arrives, an all-reduce, and by boxes, where rows do not
    divide."""
    plans = []
    for dtype in DTYPES:
        for target, rows in (('[{"y"}, {"x"}]', 9), ('[{}, {"x"}]', 9), ('[{"y"}, {"x"}]', 7)):
            source = f'[{{}}, {{"x"}}], unreduced={operator}{{"y"}}'
            plans.append(plan(make(source, target, (rows, 6), dtype, SIX)))
    check(plans, tmp_path)


def test_lines_of_extrema() -> None:
    """What stands in a module: the collectives, what boxes start from, and what is said of NaN."""
    texts = {}
    for name, source, target, rows in (
        ("scatter", '[{}, {"x"}]', '[{"y"}, {"x"}]', 8),
        ("all", '[{}, {"x"}]', '[{}, {"x"}]', 8),
        ("boxes", '[{"x"}, {}]', '[{"x", "y"}, {}]', 5),
    ):
        made = plan(make(f'{source}, unreduced=max{{"y"}}', target, (rows, 6)), "basis")
        (part,) = parts(made, "jax_xla", "c", gradient=True, single_file=True)
        texts[name] = part.text
    assert 'x = lax.all_to_all(x, "y", split_axis=0, concat_axis=0)' in texts["scatter"]
    assert "y = jnp.max(x, axis=0)" in texts["scatter"]
    assert 'y = lax.pmax(x, "y")' in texts["all"]
    assert "reduce=jnp.maximum, empty=-jnp.inf" in texts["boxes"]
    for text in texts.values():
        assert "which are reduced to their maximum" in text
        assert "XLA chooses: on CPU an all-reduce passes over NaN" in text


def test_values_of_extrema() -> None:
    """Every term decides some element, signs differ, the ends of a dtype occur."""
    mesh = Mesh({"x": 5})
    source = placement(mesh.sharding('[{}], unreduced=max{"x"}'), "flat")
    terms = oracle_terms.target_of_terms(source, placement(mesh.sharding("[{}]"), "flat"))
    for dtype in DTYPES:
        for operator, function in (("max", np.max), ("min", np.min)):
            planes = list(oracle_terms.reductions((7, 3), dtype, terms, operator))
            decides = np.zeros(5, dtype=bool)
            for parts_, values in planes:
                np.testing.assert_array_equal(function(parts_, axis=0), values[0])
                unique = (parts_ == values).sum(axis=0) == 1
                decides |= ((parts_ == values) & unique).any(axis=(1, 2))
            assert decides.all(), (dtype, operator)
            ends = {oracle_terms.identity(dtype, each) for each in EXTREMA}
            assert set(planes[0][1].ravel().tolist()) == ends
            if dtype != "bool":
                found = [values.ravel().tolist() for _, values in planes]
                assert len(set(zip(*found, strict=True))) == 21, (dtype, operator)


def test_a_wrong_extremum_is_found(tmp_path: Path) -> None:
    """Planted: the other operator, zero to start from, a term that is left out."""
    made = plan(make('[{"x"}, {}], unreduced=max{"y"}', '[{"x", "y"}, {}]', (5, 6)), "basis")
    (part,) = parts(made, "jax_xla", "c", gradient=True, single_file=True)
    from shardwright.codegen.operations.verify import Case

    faults = {
        "jnp.maximum": "jnp.minimum",
        "empty=-jnp.inf": "empty=0",
        "reduce(own, box)": "reduce(own, jnp.where(me == 1, own, box))",
    }
    cases = []
    for number, (right, wrong) in enumerate(faults.items()):
        assert part.text.count(right) == 1, right
        path = tmp_path / f"fault{number}.py"
        path.write_text(part.text.replace(right, wrong))
        cases.append(Case.of(made.reshard, right, "jax_xla", path))
    assert [report.verdict for report in reports_of("jax_xla", cases)] == ["failed"] * 3


def test_a_bundle_of_a_maximum(tmp_path: Path) -> None:
    """Emitted, verified, without a backward."""
    reshard = make('[{}, {"x"}], unreduced=max{"y"}', '[{"y"}, {"x"}]')
    sw.emit(reshard, backends=("jax_xla",), gradient=True).write(tmp_path / "extremum")
    assert not (tmp_path / "extremum" / "jax_xla_backward.py").exists()
    (report,) = verified(tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert "max" in (tmp_path / "extremum" / "README.md").read_text()


def test_a_maximum_of_kept_terms_has_a_derivative() -> None:
    """Nothing is reduced, so that terms only move."""
    reshard = make('[{}, {"x"}], unreduced=max{"y"}', '[{"x"}, {}], unreduced=max{"y"}')
    _, back = parts(plan(reshard), "jax_xla", "c", gradient=True, single_file=True)
    assert back.file == "jax_xla_backward.py"


GRADIENT = """
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh
from shardwright.codegen.checks.load import load

m = load(Path(path))
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
x = jax.device_put(jnp.ones(m.PADDED_SOURCE_SHAPE), m.source_sharding(mesh))
try:
    jax.grad(lambda x: m.reshard(x, mesh).sum())(x)
except NotImplementedError as error:
    print(error)
stopped = jax.grad(lambda x: (x.sum() + m.reshard(jax.lax.stop_gradient(x), mesh).sum()))(x)
np.testing.assert_array_equal(stopped, np.ones(x.shape))
print(m._HOST.self_check())
"""


def test_a_maximum_has_no_derivative(tmp_path: Path) -> None:
    """JAX says why; what `stop_gradient` takes out has none."""
    pytest.importorskip("jax")
    made = plan(make('[{}, {"x"}], unreduced=max{"y"}', '[{"y"}, {"x"}]'))
    for part in parts(made, "jax_xla", "shardwright emit", gradient=True, single_file=True):
        (tmp_path / part.file).write_text(part.text)
    said = session().run(GRADIENT, path=str(tmp_path / "jax_xla.py"))
    assert said.splitlines() == [
        "a partial maximum or minimum has no derivative where values are equal: "
        "stop_gradient(x) before reshard, or use a function of your own that has one",
        "shards tile the tensor; 128 elements moved, every target shard right",
    ]
