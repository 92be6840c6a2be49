"""Faults in sums, by every way that makes them: what catches an addition left out, one twice, and
another order on one replica.

Of the other ways: kernels of one exchange in `test_tpu_sums.py` and `test_gpu_sums.py`, terms that
a JAX module adds twice in `test_xla_steps.py`, rings, with steps skipped and slots reused too soon,
in `test_tpu_rings.py`; what torch adds among processes and memory that others still read in
`test_sums_over_gloo.py`. Parts that are copied to replicas are added on one device each, so that no
replica can have another order.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpu_cases import make
from lone import alone
from running import runner
from sums import QUICK
from sweeps import sampled

from shardwright.codegen.checks.case import Case
from shardwright.codegen.moves import plan
from shardwright.ir.plan import Plan

SUM = make({"x": 2, "y": 2}, (8, 5), '[{}, {}], unreduced={"x", "y"}', "[{}, {}]")
SMALL = make({"x": 2, "y": 3}, (6, 5), '[{"x"}, {}], unreduced={"y"}', '[{"x"}, {}]')
IN_TWO = plan(SUM, "direct", topology=QUICK)
BY_COLLECTIVES = plan(SMALL, "basis")

VALUES = "device [0-9]: .*wrong; element.*"
"""Said of the values of a device, beside the oracle's: numbers that tell which terms they have."""
FAULTS: dict[tuple[str, str], tuple[Plan, str, str, str]] = {
    ("pallas_tpu", "left out"): (
        IN_TWO, "for number in range(1, count):", "for number in range(1, count - 1):", VALUES,
    ),
    ("triton_gpu", "twice"): (
        IN_TWO, "total += loaded", "total += (1 + (term == 1)) * loaded", VALUES,
    ),
    ("jax_xla", "left out"): (
        BY_COLLECTIVES,
        'lax.psum(x, "y")', 'lax.psum(jnp.where(lax.axis_index("y") == 2, 0, x), "y")', VALUES,
    ),
    # Exact numbers have the same sum in any order; random floats show that replicas differ.
    ("jax_xla", "another order on one replica"): (
        BY_COLLECTIVES,
        'y = lax.psum(x, "y")',
        'z = lax.all_gather(x, "y")\n'
        '    ahead, back = z[0] + z[1] + z[2], z[2] + z[1] + z[0]\n'
        '    y = jnp.where(lax.axis_index("y") == 1, back, ahead)',
        "devices 0 and 1 have different sums",
    ),
    ("jax_xla", "rounded to fewer bits"): (
        BY_COLLECTIVES,
        'lax.psum(x, "y")',
        'lax.reduce_precision(lax.psum(x, "y"), exponent_bits=8, mantissa_bits=21)',
        "device 0: .* sums are beyond their bound; .*",
    ),
}  # fmt: skip
"""By backend and name: the plan, words of its module, what stands there instead, what is said."""


@pytest.mark.parametrize(("backend", "name"), FAULTS)
def test_planted_faults(backend: str, name: str, tmp_path: Path) -> None:
    made, words, instead, expected = FAULTS[backend, name]
    text = alone(made, backend)
    assert words in text, "nothing is planted"
    path = tmp_path / "case.py"
    path.write_text(text.replace(words, instead))
    report = runner(backend).run(Case.of(made.reshard, name, backend, path))
    assert report.verdict == "failed"
    assert re.fullmatch(expected, report.detail, re.DOTALL), report.detail


@pytest.mark.parametrize(
    "backend", sampled(["pallas_tpu", "triton_gpu", "jax_xla"], "triton_gpu", "jax_xla")
)
def test_without_a_fault(backend: str, tmp_path: Path) -> None:
    made = BY_COLLECTIVES if backend == "jax_xla" else IN_TWO
    path = tmp_path / "case.py"
    path.write_text(alone(made, backend))
    report = runner(backend).run(Case.of(made.reshard, "right", backend, path))
    assert (report.verdict, report.detail) == ("ok", "")
    assert {"sums in order", "sums within bounds"} & {*report.checks}
