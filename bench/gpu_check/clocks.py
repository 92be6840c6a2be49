"""Timers of GPU and host work, in seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.gpu_check.home import DRY, HOME, MIB, synchronize, torch

Run = Callable[[], object]

COLD = 256 * MIB
"""The bytes to write before each run, so that none of its data is in the L2 cache."""


def timed(run: Run, *, graph: bool = True, repeats: int = 10) -> float:
    """Return the median seconds of a run with a cold cache. `graph`: whether to replay the run as a
    CUDA graph, in which launches take no host time; `repeats`: the number of timed runs."""
    run()
    synchronize()
    if DRY:
        return host_time(run, 1)
    again = captured(run).replay if graph else run
    cold = torch.empty(COLD, dtype=torch.uint8, device=HOME)
    found = []
    for _ in range(repeats):
        cold.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        again()
        end.record()
        synchronize()
        found.append(start.elapsed_time(end) / 1000)
    return statistics.median(found)


def captured(run: Run) -> torch.cuda.CUDAGraph:
    """Capture a run as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def host_time(run: Run, times: int = 5) -> float:
    """Return the mean seconds until a run returns. On a GPU, it returns before its work is done."""
    synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    took = (time.perf_counter() - start) / times
    synchronize()
    return took


def kernel_times(run: Run) -> dict[str, float]:
    """Return the mean seconds of each Triton kernel in a run, by name, or nothing if the profiler
    finds none."""
    from torch.profiler import ProfilerActivity, profile

    run()
    synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as kept:
        run()
        synchronize()
    return {
        event.key: event.self_device_time_total / event.count / 1e6
        for event in kept.key_averages()
        if event.key.isidentifier()  # the names of torch's own kernels are C++ signatures
    }
