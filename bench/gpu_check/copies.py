"""The part `copies`: the rates of reshards on one GPU, and of torch's copies of as many bytes.

Bytes are those that kernels read and write. A sum reads every term of each element. If replicas, or
devices that combine terms, read the same bytes, the L2 cache may serve some of them, so the rate
can exceed the memory's; `distinct` counts every byte read only once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import shardwright as sw
from bench.gpu_check.cases import Bundle, bundles, emitted
from bench.gpu_check.clocks import host_time, timed
from bench.gpu_check.home import DRY, HOME, MIB, MOST, torch
from bench.gpu_check.reference import bytes_distinct, bytes_read, case_of
from bench.gpu_check.values import check_values
from bench.parts.attempt import Job, Row
from shardwright.codegen.checks.oracle import definition

BY_FEW = ("llama3_70b_wq_fsdp_to_tp", "attention_seq_to_heads")
"""The bundles that are also measured with few programs."""

SMALL = ("transpose_2x3", "torch_nested_2x2")
"""The bundles below 1 MiB that are timed too. Launches take most of their time."""

HUGE = (33_000, 66_000)
"""The shape of a uint8 tensor with more than 2**31 elements."""


def measured(bundle: Bundle, programs: int | None) -> Row:
    """Return the bytes and times of a bundle with all shards on one GPU. `programs`: the number of
    programs, or None to leave it to the module."""
    module, case = bundle.module(), case_of(bundle.reshard)
    dtype = getattr(torch, module.DTYPE)
    shards = [
        torch.zeros(module.source_shape(each), dtype=dtype, device=HOME)
        for each in sorted(module.SOURCE_IDS)
    ]
    out = [
        torch.zeros(module.target_shape(each), dtype=dtype, device=HOME)
        for each in sorted(module.TARGET_IDS)
    ]
    read, written = bytes_read(case), sum(each.nbytes for each in out)
    one, each_device = copied((read + written) // 2, len(out))

    def run() -> object:
        return module.reshard_local(shards, out=out, programs=programs)

    ours = timed(run)
    return {
        "devices": len(definition.holdings(case.target, case.shape)),
        "read_MiB": _mib(read),
        "distinct_MiB": _mib(bytes_distinct(case)),
        "written_MiB": _mib(written),
        "ours_us": round(ours * 1e6, 1),
        "ours_GBs": round(1e-9 * (read + written) / ours),
        "copy_GBs": round(1e-9 * (read + written) / one),
        "of_copy": round(one / ours, 2),
        "of_copies": round(each_device / ours, 2),
        "called_us": round(timed(run, graph=False) * 1e6),
        "host_us": round(host_time(run) * 1e6 / len(out), 1),
    }


def _mib(size: int) -> float:
    return float(f"{size / MIB:.4g}")


def copied(size: int, count: int) -> tuple[float, float]:
    """Return the seconds in which torch copies `size` bytes: as one copy, by a graph or a direct
    call, whichever is faster; and as `count` copies in a graph."""
    source, target = (torch.zeros(size, dtype=torch.uint8, device=HOME) for _ in range(2))

    def whole() -> object:
        return target.copy_(source)

    def parts() -> None:
        for a, b in zip(source.tensor_split(count), target.tensor_split(count), strict=True):
            b.copy_(a)

    return min(timed(whole), timed(whole, graph=False)), timed(parts)


def huge() -> Row:
    """Check a gather of more than 2**31 elements."""
    reshard = sw.Reshard(HUGE, "uint8", '[{"x"}, {}]', "[{}, {}]", mesh="x=2")
    check_values(emitted(reshard, "huge"), case_of(reshard), 1)
    return {"elements": math.prod(HUGE)}


def jobs() -> Iterator[Job]:
    for bundle in bundles():
        if bundle.bytes > MOST or not (bundle.bytes > MIB or bundle.name in SMALL):
            continue
        for programs in (None, *((16, 1) if bundle.name in BY_FEW else ())):
            said = "" if programs is None else f", programs={programs}"
            yield bundle.name + said, partial(measured, bundle, programs)
    if not DRY:
        yield "more than 2**31 elements, values", huge
