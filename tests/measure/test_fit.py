"""The figures of a topology that seconds tell: found again where they are known, kept where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import shardwright as sw
from shardwright.codegen.hardware.presets import topology_of, with_figures
from shardwright.codegen.operations.measure import fit as fits
from shardwright.codegen.operations.measure.fit import Fit, Sample, fit
from shardwright.codegen.operations.measure.price import Price, price_of_matmul, price_of_reshard
from shardwright.codegen.spec.matmul import MatmulDescription

AXES = {"x": 2, "y": 4}
SHARDINGS = (
    ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    ('[{"x", "y"}, {}]', "[{}, {}]"),
    ('[{}, {"x"}], unreduced={"y"}', '[{"y"}, {"x"}]'),
    ('[{"y"}, {}]', '[{}, {"y"}]'),
)
MATMUL = (((256, 512), '[{"x"}, {}]'), ((512, 128), '[{}, {"y"}]'), '[{"x"}, {"y"}]')


def prices(*, small: int = 64, matmuls: bool = True) -> list[Price]:
    """Prices of modules of plain JAX, small ones and large ones."""
    found = [
        price_of_reshard(
            sw.plan(sw.Reshard((size, 512), "float32", *sides, mesh=AXES), backends=("jax_xla",)),
            "jax_xla",
        )
        for size in (small, 4096)
        for sides in SHARDINGS
    ]
    for scale in (1, 4) if matmuls else ():
        lhs, rhs = (((scale * m, scale * n), text) for (m, n), text in MATMUL[:2])
        matmul = sw.Matmul("bfloat16", lhs, rhs, MATMUL[2], mesh=AXES)
        found.append(price_of_matmul(MatmulDescription.of(matmul, "m", ("jax_xla",)), "jax_xla"))
    return found


def notes(found: Fit) -> dict[str, str]:
    return {figure.name: figure.note for figure in found.figures if figure.note}


@pytest.mark.parametrize(
    ("before", "figures"),
    [
        (
            "cpu:8",
            {"bandwidth": 7e8, "launch": 3e-4, "memory": 5e9, "multiplies": 2e10, "latency": 4e-5},
        ),
        (
            "v5e:2x4",
            {
                "bandwidth": 3e10,
                "launch": 2e-6,
                "memory": 4e11,
                "latency": 3e-6,
            },
        ),
        (
            "h100:2x4",
            {"bandwidth": 3e11, "launch": 9e-6, "latency": 2e-5, "memory": 1e12}
            | {"between_bandwidth": 1e11, "between_latency": 3e-5}
            | {"kernel": 4e-6, "collective": 1e-5},
        ),
    ],
)
def test_figures_are_found_again(before: str, figures: dict[str, float]) -> None:
    base, every = topology_of(before), prices()
    true = with_figures(base, {**figures, "device": before.partition(":")[0]})
    found = fit(base, [Sample(price, price(true)) for price in every * 2])
    for price in every:
        assert price(found.topology) == pytest.approx(price(true), rel=0.02)
    told = {figure.name: figure.after for figure in found.figures if not figure.note}
    assert told == pytest.approx(figures, rel=0.05)


def test_noise_of_a_third_moves_prices_little() -> None:
    base, every = topology_of("cpu:8"), prices()
    true = replace(base, bandwidth=6e8, latency=5e-5, launch=2e-4, memory=4e9, device="cpu")
    rng = np.random.default_rng(0)
    factors = np.exp(rng.uniform(-0.3, 0.3, (4, len(every))))
    samples = [
        Sample(price, price(true) * factor)
        for row in factors
        for price, factor in zip(every, row, strict=True)
    ]
    found = fit(base, samples).topology
    ratios = np.array([price(found) / price(true) for price in every])
    assert np.abs(np.log(ratios)).max() < np.log(1.25)


def test_what_is_not_told_is_kept() -> None:
    base = topology_of("cpu:8,multiplies=3e9")
    every = prices(matmuls=False)
    found = fit(base, [Sample(price, 10 * price(base)) for price in every])
    assert notes(found)["multiplies"] == fits.NOTHING
    assert found.topology.multiplies == 3e9
    one = fit(base, [Sample(every[0], 1.0)])
    assert one.topology == base
    assert set(notes(one).values()) == {fits.NOTHING, fits.FEW}
    assert fit(topology_of("cpu:8"), [Sample(every[0], 1.0)]).topology == topology_of("cpu:8")
    alike = fit(base, [Sample(every[4], every[4](base))] * 8)
    assert notes(alike)["latency"] == fits.ALIKE
