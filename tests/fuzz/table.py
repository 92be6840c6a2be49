"""The table of cases: of all that are drawn, those in which every two features meet.

A row is an id; `generate.case_of` says what the case is, `features` has its columns. The first rows
of a backend are chosen so that few of them have every two of its features in some row, the next
ones so that they meet again. They stand in `rows.json`; after a change to what is drawn, or to
what a row costs, `python -m tests.fuzz.table` chooses them again.
"""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path

from .case import Case, JaxUse, TorchUse, VerifyUse
from .features import FEATURES, features
from .generate import case_of

POOL = 2000
"""How many ids rows are chosen among."""

_FILE = Path(__file__).with_name("rows.json")

COSTLY = ("dtensor", "more than 64 devices")
"""Columns that take many processes or devices: in some row, not with each other column."""


@cache
def drawn(backend: str) -> dict[int, Case]:
    """The cases of a backend among all that are drawn, by id."""
    return {case.id: case for case in map(case_of, range(POOL)) if case.backend == backend}


def pairs(case: Case) -> int:
    """The columns that a case has, and the pairs of them that it has both of, as bits."""
    columns, own = FEATURES[case.backend], features(case)
    has = [number for number, name in enumerate(columns) if name in own]
    usual = [number for number in has if columns[number] not in COSTLY]
    two = [*((number, number) for number in has), *itertools.combinations(usual, 2)]
    return sum(1 << (low * len(columns) + high) for low, high in two)


def cost(case: Case) -> float:
    """The seconds that a case takes, about, as measured on one core."""
    shape = 0.5 + len(case.device_ids) / 16
    match case.use:
        case TorchUse(door="dtensor"):
            return 2.5 * len(case.device_ids)
        case TorchUse():
            return 0.5 * shape
        case VerifyUse():
            return shape * {"pallas_tpu": 3.5, "triton_gpu": 2, "jax_xla": 0.4}[case.backend]
        case JaxUse(call=call, derivative=derivative):
            calls = _SECONDS_OF_CALLS[case.backend]
            return shape * (calls[call] + (calls["derivative"] if derivative else 0))


_SECONDS_OF_CALLS = {
    "pallas_tpu": {"eager": 5.0, "program": 2.2, "jit": 2.0, "derivative": 4.0},
    "jax_xla": {"eager": 0.5, "program": 0.25, "jit": 0.25, "derivative": 0.5},
}
"""Without a jit, every operation is compiled by itself."""


def chosen(backend: str, count: int) -> list[int]:
    """Choose the first ids of the table of a backend."""
    cases = drawn(backend)
    left = {number: pairs(case) for number, case in cases.items()}
    found: list[int] = []
    wanted = 0
    while len(found) < count:
        if not any(each & wanted for each in left.values()):  # every two have met: once more
            for each in left.values():
                wanted |= each
        best = max(left, key=lambda n: (left[n] & wanted).bit_count() / cost(cases[n]))
        found.append(best)
        wanted &= ~left.pop(best)
    return found


ROWS: dict[str, list[int]] = json.loads(_FILE.read_text(encoding="utf-8"))
"""The ids of the table, by backend, first those that come first."""

if __name__ == "__main__":
    lines = [f'  "{name}": {chosen(name, len(old))}' for name, old in ROWS.items()]
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
