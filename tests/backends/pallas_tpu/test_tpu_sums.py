"""Sums, maxima and minima of terms by the TPU modules: in TPU interpret mode, and by libtpu."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import kept_reshard, summed_pairs
from gpu_cases import make
from running import check, ran, runner
from strategies import exactly, message
from style import FORMATTED, LINTED
from sums import elsewhere, of_any_kind
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.backends.jax_host import axes_of, spec_of
from shardwright.codegen.checks.case import Case
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.verify import verify
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Mesh, Reshard
from shardwright.ir.plan import Plan

BACKENDS = ("pallas_tpu",)


def direct(reshard: Reshard) -> Plan:
    return plan(reshard, "direct", in_two=False)


def of_dtype(reshard: Reshard) -> Reshard:
    """The reshard, of a dtype that a TPU has."""
    if reshard.dtype != "float64":
        return reshard
    return Reshard(
        reshard.shape,
        "float32",
        reshard.source,
        reshard.target,
        source_split=reshard.source_split,
        target_split=reshard.target_split,
    )


def checked(reshard: Reshard, folder: Path) -> None:
    check("pallas_tpu", [direct(of_dtype(reshard))], folder)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(200))
def test_random(seed: int, tmp_path: Path) -> None:
    """Any axes and sub-axes unreduced, kept or not, extents that divide or not, scalars."""
    checked(of_any_kind(seed), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_to_other_meshes(seed: int, tmp_path: Path) -> None:
    checked(elsewhere(seed), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_terms_that_stay(seed: int, tmp_path: Path) -> None:
    checked(kept_reshard(seed), tmp_path)


PAIRS = summed_pairs({"x": 2, "y": 2, "z": 2}, (8, 4))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_pairs_of_the_cube(number: int, tmp_path: Path) -> None:
    """Every sharding of a matrix that leaves an axis unreduced, to every one."""
    checked(PAIRS[number], tmp_path)


SCATTERED = make(
    {"x": 2, "y": 4}, (8, 12), '[{"x"}, {}], unreduced={"y"}', '[{"x"}, {"y"}]', dtype="bfloat16"
)
REPLICATED = make({"x": 2, "y": 4}, (6, 5), '[{"x"}, {}], unreduced={"y"}', "[{}, {}]")
NARROW = make({"x": 3}, (3, 6), '[{}, {}], unreduced={"x"}', '[{"x"}, {}]', dtype="bfloat16")
SMALL = make({"x": 3}, (4, 3), '[{}, {}], unreduced={"x"}', "[{}, {}]")
ALIGNED = make({"x": 4}, (16, 512), '[{}, {}], unreduced={"x"}', '[{}, {"x"}]')
UNALIGNED = make({"x": 4}, (70, 300), '[{}, {}], unreduced={"x"}', '[{"x"}, {}]', dtype="bfloat16")
MANY = make({"x": 9}, (5,), '[{}], unreduced=max{"x"}', "[{}]", dtype="float16")


def test_the_forms() -> None:
    """Terms are a dimension to kernels, over which memory is not tiled: each form takes them."""
    said = [
        re.search(r"Form: (\w+);", parts(direct(made), "pallas_tpu", "c")[0].text)
        for made in (ALIGNED, UNALIGNED, REPLICATED)
    ]
    assert [each and each[1] for each in said] == ["direct", "windows", "slots"]


@pytest.mark.parametrize(
    "reshard",
    [ALIGNED, pytest.param(UNALIGNED, marks=pytest.mark.slow), MANY],
    ids=["direct", "windows", "many"],
)
def test_each_form(reshard: Reshard, tmp_path: Path) -> None:
    (report,) = ran("pallas_tpu", [direct(reshard)], tmp_path)
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"races", "semaphores", "protocol"} <= set(report.checks)
    assert ("sums in order" in report.checks) == (reshard is not MANY)


@pytest.mark.slow
def test_forwarded_terms(tmp_path: Path) -> None:
    """Where a v5e does not send directly."""
    made = plan(REPLICATED, "direct", topology="v5e:2x4", in_two=False)
    text = parts(made, "pallas_tpu", "c")[0].text
    assert re.search(r"_CARRIER = (Routed|Relayed|Spread)\(", text)
    check("pallas_tpu", [made], tmp_path)


def test_a_reduce_scatter_moves_the_least() -> None:
    for made in map(direct, (SCATTERED, ALIGNED)):
        traffic = made.traffic
        assert traffic.received_total == traffic.bound_received_total
        assert traffic.received_max == traffic.bound_received_max
        assert traffic.sent_max == traffic.bound_sent_max


def is_even(reshard: Reshard) -> bool:
    """Whether all shards of a side are equal."""
    exchange = direct(reshard).exchange
    return all(dim.is_even for side in (exchange.source, exchange.target) for dim in side.dims)


BESIDE_XLA = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from shardwright.codegen.moves.xla import received

for line in sys.stdin:
    axes, shape, source, target = json.loads(line)
    sizes = [size for _, size in axes]
    mesh = Mesh(np.array(jax.devices()).reshape(sizes), [name for name, _ in axes])
    x = jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, eval(source)))
    program = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, eval(target)))
    print(sum(received(program.lower(x).compile().as_text(), mesh.size)[0]))
"""


@pytest.mark.slow
def test_bytes_beside_xla() -> None:
    """What XLA moves for a sum is never less than the bound. Where values have no replicas an
    exchange is at most twice the bound, as a device that holds no term of a value gets both, and
    less than XLA moves."""
    pairs = [each for each in PAIRS[::183] if is_even(each)]  # as JAX has arrays
    asked = [
        json.dumps((axes_of(r.source), (2, *r.shape), spec_of(r.source), spec_of(r.target)))
        for r in pairs
    ]
    flags = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    words = [sys.executable, "-c", BESIDE_XLA]
    run = subprocess.run(
        words, input="\n".join(asked), env=flags, capture_output=True, text=True, check=True
    )
    ratios = []
    for reshard, line in zip(pairs, run.stdout.split(), strict=True):
        traffic, moved = direct(reshard).traffic, int(line)
        assert traffic.bound_received_total <= moved
        if {ref.name for ref in reshard.target.used()} == {"x", "y", "z"}:
            assert traffic.received_total <= 2 * traffic.bound_received_total
            ratios.append(traffic.received_total / moved)
    assert max(ratios) < 1


@pytest.mark.exhaustive
def test_bundles(tmp_path: Path) -> None:
    """Verified with gradients and beside Triton's module, of one plan."""
    for number, reshard in enumerate((SCATTERED, REPLICATED)):
        bundle = sw.emit(reshard, gradient=True)
        assert bundle.plan.ops == "exchange"
        bundle.write(tmp_path / f"sum{number}")
    for report in verify(tmp_path):
        assert (report.verdict, report.detail) == ("ok", "")
        assert {"derivative"} <= set(report.checks)


def test_modules_are_formatted(tmp_path: Path) -> None:
    for number, reshard in enumerate((SCATTERED, REPLICATED, ALIGNED, UNALIGNED, MANY)):
        text = parts(direct(reshard), "pallas_tpu", "shardwright emit")[0].text
        (tmp_path / f"case{number}.py").write_text(text)
    for words in (FORMATTED, LINTED):
        command = [sys.executable, "-m", *words, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-3000:]


def test_the_backward_of_a_reduce_scatter_is_an_all_gather() -> None:
    own, back = parts(direct(SCATTERED), "pallas_tpu", "c", gradient=True)
    assert "reduces=True" in own.text
    assert "reduces=True" not in back.text
    gather = sw.all_gather(
        (8, 12), "bfloat16", Mesh({"x": 2, "y": 4}).sharding('[{"x"}, {"y"}]'), "y"
    )
    assert back.plan.traffic == plan(gather).traffic


FAULTS = {
    "twice": (
        SMALL,
        r"for number in range\(1, count\):",
        "for number in (*range(1, count), 1):",
        "device 0: .*wrong; element.*",
    ),
    "rounded_each_time": (
        NARROW,
        r"wide = jnp.float32 if narrow else",
        "wide = terms.dtype if narrow else",
        "sums in the order of their terms: .*wrong; element.*",
    ),
    "another_order_on_all": (
        SMALL,
        r"for number in range\(1, count\):",
        "for number in reversed(range(1, count)):",
        "sums in the order of their terms: .*wrong; element.*",
    ),
    "another_order_on_one_replica": (
        SMALL,
        r"    total, count = terms\[0\]",
        "    turned = jnp.where(jnp.int32(lax.axis_index('x')) == 2, 1, 0)\n"
        "    terms = jnp.roll(terms, turned, 0)\n"
        "    total, count = terms[0]",
        "sums in the order of their terms: device 2: .*wrong; element.*",
    ),
    "a_slot_of_another": (
        ALIGNED,
        r"in_y = \(me,",
        "in_y = (jnp.minimum(me, 2),",
        "(?s).*(race|wrong; element|more than once).*",
    ),
    "nobody_waits": (
        ALIGNED,
        r"wait_for\(y, received\)",
        "None",
        "(?s).*(semaphore|wrong; element).*",
    ),
    "terms_of_others": (
        REPLICATED,
        r"lo0 = rem\(position, 4\)",
        "lo0 = rem(position + 1, 4)",
        "source_box.*",
    ),
}
"""By name: the reshard, words of its module, what stands there instead, and what is said."""


@pytest.mark.parametrize("name", sampled(FAULTS, "rounded_each_time", "nobody_waits"))
def test_planted_faults(name: str, tmp_path: Path) -> None:
    reshard, words, instead, expected = FAULTS[name]
    text = parts(direct(reshard), "pallas_tpu", "shardwright emit", single_file=True)[0].text
    wrong, count = re.subn(words, instead, text)
    assert count, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(wrong)
    report = runner("pallas_tpu").run(Case.of(reshard, name, "pallas_tpu", path))
    assert report.verdict == "failed"
    assert re.fullmatch(expected, report.detail), report.detail


def test_what_is_refused() -> None:
    assert message(lambda: sw.emit(SCATTERED, BACKENDS, "basis")) == exactly(
        """
        strategy: every backend must support the strategy
        got: basis for pallas_tpu
        expected: one of auto, direct, or backends jax_xla
        """
    )
    both = make({"x": 2}, (4,), '[{}], unreduced={"x"}', '[{"x"}]', dtype="float64")
    assert message(lambda: sw.emit(both, backends=BACKENDS)).startswith(
        "dtype: pallas_tpu cannot move this dtype: a TPU has no 64-bit floats"
    )
