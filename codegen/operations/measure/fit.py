"""Fit a topology's figures to measured seconds.

Each figure, such as a bandwidth, has a cost, such as seconds per byte. A price is linear in these
costs; its coefficients are a module's numbers of messages, bytes and calls. If a stage takes the
longer of two times, or the price depends on a choice of algorithm, the price is piecewise linear.
The coefficients are its derivatives. A fit solves the equations of all modules for the costs, and
repeats with new coefficients until the costs no longer change.

A figure is fitted if some price depends on it before the fit. A figure that only determines the
shorter of two times affects no price, and keeps its value.

The fit minimises the sum of squared differences, each divided by measured and by predicted seconds,
so that a prediction of half the time counts as much as one of twice the time. No cost falls below
LEAST times its old value, so that every figure stays finite.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardwright.codegen.hardware.presets import device_of, with_figures
from shardwright.codegen.hardware.rates import multiply_rate
from shardwright.codegen.hardware.topology import Floats, Topology
from shardwright.codegen.operations.measure.price import Price

RATES = ("bandwidth", "memory", "multiplies", "between_bandwidth", "core_bandwidth")
"""The figures in units per second, whose cost is in seconds per unit."""

FIGURES = (
    *("bandwidth", "launch", "memory", "multiplies", "latency", *RATES[3:], "between_latency"),
    *("kernel", "collective"),
)
"""All fitted figures, most important first."""

MODULES = 2
"""The number of modules needed per fitted figure."""

LEAST = 1e-3
TURNS = 12
"""The most iterations of a fit."""
SETTLED = 1e-3
"""The relative change of all costs below which the fit ends."""
STEP = 1e-4
"""The relative change of a cost from which the derivatives of prices are computed."""
FARTHEST = 10.0
"""The largest factor by which a price below the measured seconds is weighted as such: a price that
is lower by more is weighted as if it were lower by this factor."""
APART = 0.1
"""The fraction of a figure's effect on prices that other figures must leave unexplained. If they
leave less, the figure is not fitted."""

NOTHING = "no module depends on it"
ALIKE = "the modules depend on it only in proportion to the figures above"
FEW = f"{MODULES} modules are needed for each figure"
NO_PART = "the other figures explain all of the time"
QUICK = f"takes too little time to measure: at most {LEAST:g} of the total"


@dataclass(frozen=True)
class Sample:
    """A module's price function and its measured seconds."""

    price: Price
    seconds: float


@dataclass(frozen=True)
class Figure:
    """A figure's value before and after a fit, 0 if the topology does not count it. `note`: why it
    was kept, or why its fitted value is doubtful, otherwise ""."""

    name: str
    before: float
    after: float
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """The fitted topology, and each figure before and after the fit."""

    topology: Topology
    figures: tuple[Figure, ...]


def fit(topology: Topology, samples: Sequence[Sample]) -> Fit:
    """Fit the figures of a topology that the samples determine, and keep the others. Raises
    InputError if a module needs more devices than the topology has."""
    model = _Model.of(topology, samples)
    told, notes = _told(model)
    costs = model.start
    for turn in range(TURNS):
        solved = _solved(model, costs, told)
        found = solved if turn < 2 else (solved + costs) / 2
        settled = np.allclose(found, costs, rtol=SETTLED, atol=0.0)
        costs = found
        if settled:
            break
    fitted = model.fitted(costs, [model.names[number] for number in told])
    quick = np.isclose(costs, model.start * LEAST, atol=0.0)
    for number in told:
        if quick[number]:
            notes[model.names[number]] = QUICK if costs[number] else NO_PART
    figures = (
        Figure(name, getattr(topology, name), getattr(fitted, name), notes.get(name, ""))
        for name in model.names
    )
    return Fit(fitted, tuple(figures))


@dataclass(frozen=True)
class _Model:
    """The samples, and the topology before the fit. `counted`: the topology with a value for every
    figure of its kind; `names`: the names of these figures."""

    given: Topology
    counted: Topology
    samples: Sequence[Sample]
    names: tuple[str, ...]

    @staticmethod
    def of(topology: Topology, samples: Sequence[Sample]) -> _Model:
        counted = replace(
            topology,
            memory=topology.memory or topology.ingest,
            multiplies=multiply_rate(topology, "float32"),
            device=device_of(topology),
        )
        names = (name for name in FIGURES if name == "launch" or getattr(counted, name, None))
        return _Model(topology, counted, samples, tuple(names))

    @cached_property
    def start(self) -> Floats:
        return np.array([_turned(name, getattr(self.counted, name)) for name in self.names])

    @cached_property
    def seconds(self) -> Floats:
        return np.array([sample.seconds for sample in self.samples])

    def fitted(self, costs: Floats, told: Sequence[str]) -> Topology:
        values = zip(self.names, costs.tolist(), strict=True)
        found = {name: float(f"{_turned(name, cost):.4g}") for name, cost in values if name in told}
        device = self.counted.device if found else self.given.device
        return with_figures(self.given, {**found, "device": device})

    def apart(self, costs: Floats) -> tuple[Floats, Floats]:
        """Return the price of each sample, and its derivative with respect to each cost, as
        [samples, costs]."""
        prices, steps = self._prices(costs), np.where(costs > 0, costs * STEP, STEP)
        more = [self._prices(costs + step) for step in np.diag(steps)]
        return prices, (np.stack(more, axis=1) - prices[:, None]) / steps

    def _prices(self, costs: Floats) -> Floats:
        values = {n: _turned(n, cost) for n, cost in zip(self.names, costs.tolist(), strict=True)}
        topology = with_figures(self.counted, values)
        return np.array([sample.price(topology) for sample in self.samples])


def _turned(name: str, value: float) -> float:
    return 1.0 / value if name in RATES else value


def _told(model: _Model) -> tuple[list[int], dict[str, str]]:
    """Return the indices of the figures that the samples determine and, for each other figure by
    name, the reason why they do not."""
    _, grows = model.apart(model.start)
    columns = (grows / model.seconds[:, None]).T
    taken: list[int] = []
    notes = {}
    for number, name in enumerate(model.names):
        size = float(np.linalg.norm(columns[number]))
        before = columns[taken].T
        part, *_ = np.linalg.lstsq(before, columns[number])
        left = float(np.linalg.norm(columns[number] - before @ part))
        if not size:
            notes[name] = NOTHING
        elif len(model.samples) < MODULES * (len(taken) + 1):
            notes[name] = FEW
        elif left < APART * size:
            notes[name] = ALIKE
        else:
            taken.append(number)
    return taken, notes


def _solved(model: _Model, costs: Floats, told: list[int]) -> Floats:
    """Fit the costs at the indices `told` to the samples, with prices linearised at `costs`, and
    return all costs."""
    prices, grows = model.apart(costs)
    weights = 1.0 / np.sqrt(model.seconds * np.maximum(prices, model.seconds / FARTHEST))
    found = costs.copy()
    found[told] = LEAST * model.start[told]
    left = model.seconds - grows @ found
    found[told] += _positive(grows[:, told] * weights[:, None], left * weights)
    return found


def _positive(columns: Floats, wanted: Floats) -> Floats:
    """Return the non-negative coefficients with which `columns` best approximate `wanted`. Try
    every subset of columns and discard solutions with a negative coefficient."""
    best, least = np.zeros(columns.shape[1]), float(wanted @ wanted)
    every = range(columns.shape[1])
    for some in itertools.chain.from_iterable(
        itertools.combinations(every, count) for count in range(1, len(every) + 1)
    ):
        numbers, *_ = np.linalg.lstsq(columns[:, some], wanted)
        error = float(np.square(columns[:, some] @ numbers - wanted).sum())
        if (numbers >= 0).all() and error < least:
            least = error
            best = np.zeros(columns.shape[1])
            best[[*some]] = numbers
    return best
