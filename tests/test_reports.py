"""Public reports (`report_cases.py`) run right, by the calls that their users have: each value, and
the bytes of the busiest device. `LATER` lists those that have no words yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matmuls
import numpy as np
import pytest
from commands import ok
from places import ROOT
from programs import findings
from report_cases import (
    CALL,
    IN_RANKS,
    LATER,
    LAYOUTS,
    MOVED,
    PRODUCTS,
    PROGRAMS,
    Layouts,
    Moved,
    Product,
)

import shardwright as sw
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.oracle.definition import holdings
from shardwright.codegen.operations.verify import Case
from shardwright.codegen.spec.config import load_toml

REPORTS = ROOT.parent / "shared/corpus/reports.json"


def test_the_list_is_whole() -> None:
    """Where the list of reports stands beside the repository, every one is here, once."""
    threads = {
        name: case.thread for table in (MOVED, PRODUCTS, PROGRAMS) for name, case in table.items()
    }
    threads |= {"device_order_16": CALL.thread, **IN_RANKS}
    threads |= {name: case.thread for name, case in LAYOUTS.items() if "," not in name}
    threads |= {name: thread for name, (thread, _) in LATER.items()}
    assert len(threads) == 21
    if not REPORTS.is_file():
        pytest.skip(f"no {REPORTS}")
    listed = json.loads(REPORTS.read_text())
    assert {each["id"]: f"{each['repo']}#{each['number']}" for each in listed} == threads
    missing = {each["id"] for each in listed if each["status"] == "missing"}
    assert {*LATER} == missing - {*LAYOUTS}


def test_programs_and_a_call() -> None:
    """Functions of JAX, and `sw.reshard` onto another order of devices."""
    pytest.importorskip("jax")
    found = findings("report_process.py")
    assert {name: wrong for name, (_, wrong) in found.items() if wrong} == {}
    most = {name: case.most for name, case in PROGRAMS.items()}
    assert {n: b for n, (b, _) in found.items()} == {**most, "device_order_16": CALL.received}


def table(name: str, case: Moved, at: int) -> str:
    """The config of a report, of its full shapes (0) or those that are run (1)."""
    tensors = (
        f"{{name = {key!r}, shape = {list(each[at])}, source = {each[2]!r}, target = {each[3]!r}}}"
        for key, each in case.tensors.items()
    )
    return (
        f"[defaults]\ndtype = {case.dtype!r}\nbackends = ['triton_gpu']\n"
        f"[[group]]\nname = {name!r}\nmesh = {case.mesh!r}\n"
        f"target_mesh = {case.target_mesh!r}\ntensors = [\n{', '.join(tensors)}]\n"
    )


@pytest.mark.parametrize("name", [name for name, case in MOVED.items() if case.received])
def test_bytes(name: str, tmp_path: Path) -> None:
    (tmp_path / "shardwright.toml").write_text(table(name, MOVED[name], 0))
    planned = json.loads(ok("plan", tmp_path / "shardwright.toml", name, "--json"))
    assert planned["bytes"]["received_max"] == MOVED[name].received


def emitted(name: str, folder: Path) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The Triton module of a report's group, with whole tensors and their source shards."""
    torch: Any = pytest.importorskip("torch")
    pytest.importorskip("triton")
    case, path = MOVED[name], folder / "shardwright.toml"
    path.write_text(table(name, case, 1))
    ok("emit", path, "-q")
    whole, given = {}, {}
    for each in load_toml(path):
        size = int(np.prod(each.shape))
        whole[each.name] = torch.arange(size).view(each.shape).to(getattr(torch, case.dtype))
        source = Case.of(each.reshard(), each.name, "triton_gpu", path).source
        given[each.name] = [
            whole[each.name][np.ix_(*map(list, held))]
            for _, held in sorted(holdings(source, each.shape).items())
        ]
    return load(folder / "generated" / name / "triton_gpu.py"), whole, given


@pytest.mark.parametrize("name", MOVED)
def test_values(name: str, tmp_path: Path) -> None:
    """Each target device has the part that the report asks for."""
    module, whole, given = emitted(name, tmp_path)
    found = module.reshard_local(given)
    for rank in range(len(found[next(iter(found))])):
        for key, held in MOVED[name].held(rank).items():
            assert found[key][rank].equal(whole[key][held]), (rank, key)


def test_rows_of_fused_parameters(tmp_path: Path) -> None:
    """Source shards are rows of [q | k | v], results go into rows of it, and nothing is copied."""
    module, whole, given = emitted("fused_qkv_kv_replicas_out_views", tmp_path)
    torch: Any = pytest.importorskip("torch")
    fused = [torch.cat(shards) for shards in zip(*given.values(), strict=True)]
    sources = [each.split((4, 1, 1)) for each in fused]
    targets = [torch.full((4, 4, 6), -1.0) for _ in range(4)]
    outs = [each.split((2, 1, 1)) for each in targets]
    moved = module.reshard_local(
        dict(zip(whole, map(list, zip(*sources, strict=True)), strict=True)),
        out=dict(zip(whole, map(list, zip(*outs, strict=True)), strict=True)),
    )
    for rank, target in enumerate(targets):
        assert target.equal(
            torch.cat(
                (whole["q"][2 * rank : 2 * rank + 2], *(whole[key][[rank // 2]] for key in "kv"))
            )
        )
        assert moved["q"][rank].data_ptr() == target.data_ptr()


@pytest.mark.parametrize("name", PRODUCTS)
def test_matmuls(name: str, tmp_path: Path) -> None:
    case = PRODUCTS[name]
    assert sw.plan(matmul(case, case.extents)).chosen.cost.received_max <= case.most
    for _, _, report in matmuls.verified(
        [matmul(case, case.small)], tmp_path, loop="auto", backend=case.backend
    ):
        assert report.verdict == "ok", report.detail


def matmul(case: Product, extents: tuple[int, int, int]) -> sw.Matmul:
    """The matmul of a report, of some extents."""
    i, j, k = extents
    lhs, rhs, out = case.shardings
    return sw.Matmul(case.dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=case.mesh)


def of_group(case: Moved) -> Layouts:
    """The layouts of a report whose tensors have plain shardings."""
    tensors = {name: each[0] for name, each in case.tensors.items()}
    source, target = ({name: each[at] for name, each in case.tensors.items()} for at in (2, 3))
    ends = (case.mesh, source), (case.target_mesh, target)
    return Layouts(case.thread, case.dtype, tensors, *ends, case.received or 0, None)


EVERY_LAYOUT = {**{f"{n}, whole": of_group(c) for n, c in MOVED.items() if c.received}, **LAYOUTS}


@pytest.mark.parametrize("name", EVERY_LAYOUT)
def test_layouts(name: str) -> None:
    """The bytes that the report states; a side differs from the other, and not from itself."""
    case = EVERY_LAYOUT[name]
    source, target = (
        sw.Stored(mesh, case.tensors, layouts, case.dtype)
        for mesh, layouts in (case.source, case.target)
    )
    plan = sw.plan(sw.Relayout(source, target))
    assert plan.received_max == case.received
    assert case.total in (None, plan.total)
    assert sw.compare(target, target).same
    if {*source.mesh.device_ids} == {*target.mesh.device_ids}:
        assert not sw.compare(source, target).same


def test_where_reports_lay() -> None:
    """What a padded vocabulary and scales that overlap are, rank by rank."""
    vocabulary, scales = LAYOUTS["vocab_padding"], LAYOUTS["fp8_scale_overlap"]
    for (mesh, layout), widths in zip(vocabulary[3:5], ([4, 4, 2, 0], [6, 4]), strict=True):
        stored = sw.Stored(mesh, vocabulary.tensors, layout, vocabulary.dtype)
        (part,) = stored.bound["w"].parts
        assert [high - low for low, high in (part.box(p)[0] for p in range(len(widths)))] == widths
    mesh, layout = scales.target
    stored = sw.Stored(mesh, scales.tensors, layout, scales.dtype)
    found = [part.box(p)[0] for part in stored.bound["scales"].parts for p in range(4)]
    assert found == [(0, 2), (1, 3), (3, 5), (4, 6)]
