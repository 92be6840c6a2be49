"""`reshard` of the Triton module among real processes: gloo, against the oracle, counting bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import all_pairs, describe, devices, random_reshard
from every_feature import EVERY
from gloo_group import run_group

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import Run
from shardwright.codegen.checks.oracle.definition import Bits
from shardwright.codegen.checks.terms import added_in_order, own_terms, random_terms, runs
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.ir import Reshard
from shardwright.ir.plan import Plan


def as_bits(numbers: np.ndarray, dtype: str) -> Bits:
    """The bits of numbers as values of a dtype."""
    import torch

    values = torch.from_numpy(np.ascontiguousarray(numbers)).to(getattr(torch, dtype))
    flat = values.reshape(-1).view(torch.uint8).numpy()
    return flat.view(f"u{values.element_size()}").reshape(numbers.shape)


def exact(case: Case) -> Run:
    """Values that identify elements; terms whose sums are exact."""
    return next(runs(case, as_bits))


def rounded(case: Case) -> Run:
    """Random terms of a floating dtype, and their sums in the order that modules state, as float32
    and rounded once, or as float64."""
    import torch

    terms = as_bits(random_terms(case), case.dtype)
    values = torch.from_numpy(terms.copy()).view(getattr(torch, case.dtype))
    wide = values if case.dtype == "float64" else values.float()
    sums = added_in_order(case, wide.reshape(terms.shape).numpy())
    return Run(as_bits(sums, case.dtype), 0, 0, 0, terms)


Ends = tuple[str, ...]
"""Of "source" and "target" some."""

Given = Callable[[Case], Run]
"""What a module is run on."""


def check_exchange(
    reshards: list[Reshard], folder: Path, topology: str | None = None
) -> list[set[Ends]]:
    """Every reshard in one group of processes; results and bytes on the wire as planned. Returns
    the ends at which nothing was packed of each."""
    return check_exchanges(
        [plan(reshard, "direct", topology=topology) for reshard in reshards], folder
    )


def as_it_is(text: str) -> str:
    return text


def check_exchanges(
    plans: list[Plan],
    folder: Path,
    plant: Callable[[str], str] = as_it_is,
    given: Given = exact,
) -> list[set[Ends]]:
    """Every plan in one group of processes; `plant`: a fault, in the text of a module; `given`:
    what a module is run on. Returns the ends at which nothing was packed of each."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    cases, expected, reshards = [], [], [made.reshard for made in plans]
    for number, made in enumerate(plans):
        case, wanted = asked(made, folder / f"case{number}.py", plant, given)
        cases.append(case)
        expected.append((wanted, made.traffic))
    results = run_group(max(map(devices, reshards)), cases, folder)
    ways: list[set[Ends]] = []
    for number, reshard in enumerate(reshards):
        wanted, traffic = expected[number]
        ranks = [lines[number] for lines in results if "outside" not in lines[number]]
        for call in ("result", "later"):
            got = {rank["device"]: rank[call] for rank in ranks if rank[call] is not None}
            assert got == wanted, describe(reshard)
        assert sum(rank["sent"] for rank in ranks) == traffic.received_total
        assert max(rank["sent"] for rank in ranks) == traffic.sent_max
        ways.append({tuple(way) for rank in ranks for way in rank["ways"]})
    return ways


def asked(
    made: Plan, path: Path, plant: Callable[[str], str] = as_it_is, given: Given = exact
) -> tuple[dict[str, Any], dict[int, str]]:
    """A case of processes, its module written to a path, and the target shards that are wanted."""
    text = parts(made, "triton_gpu", "shardwright emit", single_file=True, features=EVERY)[0].text
    path.write_text(plant(text))
    case = Case.of(made.reshard, path.stem, "triton_gpu", path)
    run = given(case)
    shards, wanted = (
        {device: shard.tobytes().hex() for device, shard in own_terms(*side).items()}
        for side in (
            (case.source, case.source_array, run.given),
            (case.target, case.target_array, run.tensor),
        )
    )
    return {"module": str(path), "world": devices(made.reshard), "shards": shards}, wanted


def test_pairs_of_six_by_six_over_gloo(tmp_path: Path) -> None:
    """Every 22nd pair; `make exhaustive` takes them all."""
    check_exchange(all_pairs({"x": 2, "y": 3}, (6, 6))[::22], tmp_path)


@pytest.mark.exhaustive
def test_all_pairs_of_six_by_six_over_gloo(tmp_path: Path) -> None:
    check_exchange(all_pairs({"x": 2, "y": 3}, (6, 6)), tmp_path)


@pytest.mark.slow
def test_random_over_gloo(tmp_path: Path) -> None:
    few = [r for r in map(random_reshard, range(40)) if devices(r) <= 6]
    check_exchange(few, tmp_path)


def test_two_meshes_over_gloo(tmp_path: Path) -> None:
    """A rank outside the source passes None, one outside the target gets None."""
    one_sided = []
    for seed in range(200):
        reshard = random_reshard(seed)
        sides = reshard.source.mesh.device_ids, reshard.target.mesh.device_ids
        if set(sides[0]) != set(sides[1]) and devices(reshard) <= 8:
            one_sided.append(reshard)
    check_exchange(one_sided[:5], tmp_path)
