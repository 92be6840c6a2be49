"""Pictures of the measurements: well formed, in place, with their figures beside them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import chart
from bench.chart import Chart, Series, svg, written

TICKS = ((8.0, "8"), (64.0, "64"), (512.0, "512"))
CHART = Chart(
    "Planning <fast>",
    "devices",
    "seconds",
    (
        Series("direct", ((8.0, 0.03), (512.0, 0.3)), 0, joined=True),
        Series("XLA", ((8.0, 0.6), (64.0, 7.25)), 1, hollow=True),
    ),
    TICKS,
    is_log=True,
    rules=((1.0, "a second"),),
)


def circles(text: str) -> list[tuple[float, float]]:
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)
    return [(float(x), float(y)) for x, y in found]


def test_points_are_where_their_values_are() -> None:
    """Equal ratios are equal distances, both ways; all points are within the frame."""
    ElementTree.fromstring(svg(CHART))
    low, middle, high = (CHART.x(place) for place, _ in TICKS)
    assert middle - low == pytest.approx(high - middle)
    assert CHART.y(0.1) - CHART.y(1.0) == pytest.approx(CHART.y(1.0) - CHART.y(10.0))
    assert CHART.heights() == (0.02, 10.0)
    points = [point for point in circles(svg(CHART)) if point[0] <= chart.WIDTH - chart.RIGHT]
    assert len(points) == 4
    for (x, y), (at, value) in zip(
        points, (p for s in CHART.series for p in s.points), strict=True
    ):
        assert x == pytest.approx(CHART.x(at), abs=0.1)
        assert y == pytest.approx(CHART.y(value), abs=0.1)
        assert chart.LEFT <= x <= chart.WIDTH - chart.RIGHT
        assert chart.TOP <= y <= chart.HEIGHT - chart.BOTTOM


def test_figures_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "PICTURES", tmp_path)
    written("scale", CHART)
    figures = json.loads((tmp_path / "scale.json").read_text())
    assert figures["series"]["XLA"] == [[8.0, 0.6], [64.0, 7.25]]
    assert (figures["ticks"], figures["rules"]) == (
        {"8": 8.0, "64": 64.0, "512": 512.0},
        {"a second": 1.0},
    )
    assert (tmp_path / "scale.svg").read_text() == svg(CHART)


@pytest.mark.parametrize("kept", sorted(chart.PICTURES.glob("*.json")), ids=lambda p: p.stem)
def test_pictures_have_their_figures(kept: Path) -> None:
    """Every point of a kept picture is one of the figures beside it."""
    text = kept.with_suffix(".svg").read_text()
    series = json.loads(kept.read_text())["series"]
    points = [point for point in circles(text) if point[0] <= chart.WIDTH - chart.RIGHT]
    assert len(points) == sum(map(len, series.values())) > 0
    assert all(math.isfinite(value) for row in series.values() for _, value in row)
