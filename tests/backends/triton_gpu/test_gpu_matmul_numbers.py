"""What the kernels of Triton matmuls take for granted, against what their host lists."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matmuls import random_matmul, write_module
from sweeps import slow

import shardwright as sw
from shardwright.codegen.backends.matmul_facts import layout_of
from shardwright.codegen.backends.triton_gpu.matmul.context import DTYPES
from shardwright.codegen.backends.triton_gpu.matmul.kernel import MatmulKernels
from shardwright.codegen.backends.triton_gpu.matmul.kernel_text import MultiplyText
from shardwright.codegen.backends.triton_gpu.matmul.tiles import tiles_of
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir.matmul import SIDES

NAMES = dict(zip("ab", SIDES, strict=False))
torch = pytest.importorskip("torch")


def larger(given: sw.Matmul, times: int) -> sw.Matmul:
    """A matmul of matrices that are so many times as high and as wide."""
    lhs, rhs = (
        ((*shape[:-2], *(times * extent for extent in shape[-2:])), given.sharding(side))
        for side in SIDES[:2]
        for shape in [given.shape(side)]
    )
    return sw.Matmul(given.dtype, lhs, rhs, given.out, given.out_dtype)


@pytest.mark.parametrize("seed", [0, *slow(1, 6)])
def test_numbers_hold_on_all_devices(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for number in range(4):
        given = random_matmul(rng, batch=rng.choice((0, 0, 1)), dtypes=DTYPES)
        given = larger(given, rng.choice((1, 8, 64)))
        plan = plan_matmul(given, listed=0)
        case = write_module(plan, f"m{number}", tmp_path, backend="triton_gpu")
        product = plan.chosen.multiplication
        layouts = {side: layout_of(given, side) for side in SIDES}
        kernels = MatmulKernels(product, layouts, tiles_of(product, layouts))
        text = kernels.text
        host = load(case.module)._HOST
        assert text.pushes == host.parts.pushes
        assert text.adds == host.parts.adds
        assert [each.name[0] for each in text.moved] == [
            "lr"["ab".index(s)] for s in host.parts.moved
        ]
        members = host._local((torch.device("cpu"),) * len(host.ids))
        for member in members:
            check_tables(member, text)
            assert member.held.nbytes == kernels.shared
        assert max(member.arena.nbytes for member in members) == kernels.arrivals
        lacks = [m for m in members if m.sums.numel() and not host.parts.terms(m.position)]
        assert text.neutral or all(0 in host.shape(2, m.position) for m in lacks)


def check_tables(member: Any, text: MultiplyText) -> None:
    """Divisors divide, masks are left out of whole blocks only, and slots are large enough."""
    jobs = member.jobs.view(-1, 10 if text.adds else 8)
    assert not (jobs[:, [1, 2, 4, 5, 6]] % text.copied.lanes).any()
    assert (jobs[:, 4] <= text.copied.columns * text.copied.across).all()
    tiles, segments = member.tile_table.view(-1, 10), member.segments.view(-1, 4)
    assert not (tiles[:, [1, 9]] % text.c_unit).any()
    assert not (member.owners.view(-1, 3)[:, 1:] % text.c_unit).any()
    assert not (tiles[:, 4] % text.b_unit).any()
    assert not (member.rows_apart["b"] % text.b_unit)
    assert not (segments[:, :2] % text.a_unit).any()
    assert not (member.rows_apart["a"] % text.a_unit)
    depths = segments[:, 1] - segments[:, 0]
    assert text.a_mask or not (depths % text.depth).any()
    assert "column" in text.b_mask or (tiles[:, 1] == text.columns).all()
    for side in text.moved:
        assert (segments[:, side.field] >= 0).all()
    if text.described:
        (a_rows, along), (b_rows, across) = member._matrices["a"], member._matrices["b"]
        assert ((tiles[:, 0] == text.rows) | (tiles[:, 2] + tiles[:, 0] == a_rows)).all()
        assert ((tiles[:, 1] == text.columns) | (tiles[:, 4] + tiles[:, 1] == across)).all()
        assert along == b_rows or not (depths % text.depth).any()
    sizes = {s: math.prod(member.of.shape(n, member.position)) for n, s in enumerate(SIDES)}
    starts = [*(side.start for side in text.moved), text.slot]
    for side, (low, high) in zip(text.moved, pairwise(starts), strict=True):
        assert high - low >= sizes[side.name]
    assert text.sums >= sizes["out"] * member.parts.terms(member.position) * text.pushes


@pytest.mark.parametrize(("processors", "beside"), [(8, False), (16, False), (17, True)])
def test_few_processors(
    processors: int, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU has an SM for `multiply` beside those of `pull`, or pulls first."""
    sides = ((512, 64), '[{"x"}, {}]'), ((64, 512), '[{}, {"x"}]')
    given = sw.Matmul("float32", *sides, '[{}, {"x"}]', mesh=sw.Mesh({"x": 2}))
    case = write_module(plan_matmul(given, listed=0), "m", tmp_path, backend="triton_gpu")
    member = load(case.module)._HOST._local((torch.device("cpu"),) * 2)[0]
    launched: list[tuple[object, ...]] = []
    streams = ["main"]

    class Stream(SimpleNamespace):
        def wait_stream(self, other: Stream) -> None:
            launched.append((self.name, "waits for", other.name))

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        streams.append(stream.name)
        yield
        streams.pop()

    found = SimpleNamespace(multi_processor_count=processors)
    monkeypatch.setattr(type(member), "on_gpu", True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda home: found)
    monkeypatch.setattr(torch.cuda, "Stream", lambda home: Stream(name="side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda home: Stream(name="main"))
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(
        member, "_launch", lambda name, few, *_, **__: launched.append((streams[-1], name, few))
    )
    out = torch.empty(member.of.shape(2, 0))
    member._pull(True)
    member._multiply(torch.empty(256, 64), torch.empty(64, 256), out, True)
    assert member.tile_count >= 16
    if beside:
        assert launched == [
            ("side", "waits for", "main"),
            ("side", "pull", 16),
            ("main", "multiply", 1),
            ("main", "waits for", "side"),
        ]
    else:
        assert launched == [("main", "pull", 16), ("main", "multiply", processors)]
