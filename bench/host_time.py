"""The host time of one call of `reshard` with `out`: the time in Python alone, measured without a
GPU.

`python -m bench host_time`. The module is one of the corpus. Its kernel is compiled for sm_90, and
Triton launches it as on a GPU, but calls to the driver, the group and the memory of peers are faked
and do nothing. Three calls are timed: with the tensors of an earlier call, as in a training step or
a server; with a source shard that must first be copied to symmetric memory; and with new tensors,
which are checked.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from bench.reshards import corpus
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts

CALLS, REPEATS = 2000, 9
NAMES = ("kv_cache_tp4_to_tp2", "llama3_70b_wq_fsdp_to_tp")
SMALL = 64
"""The largest extent. The time does not depend on the size of tensors, and small tensors save
memory."""


class FakeDriver:
    """A fake Triton driver, for an sm_90 GPU that does not exist."""

    def __init__(self) -> None:
        from triton.backends.compiler import GPUTarget

        facts = {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (0, 0, 0, 0, 1024),
            get_device_properties=lambda _: facts | {"max_num_regs": 65536},
        )
        self.target, self.launches = GPUTarget("cuda", 90, 32), 0

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        del device
        return 0

    def get_current_target(self) -> Any:
        return self.target

    def launcher_cls(self, *given: Any) -> Callable[..., None]:
        """Return a kernel launcher that only counts its launches."""
        del given
        return self._launch

    def _launch(self, *given: Any) -> None:
        del given
        self.launches += 1


class FakeGroup:
    """A fake process group without methods."""


@contextmanager
def faked(ranks: int) -> Iterator[FakeDriver]:
    """Fake a group of `ranks` ranks, with this process as rank 0. The driver is replaced for good:
    without a GPU, Triton has no other driver to restore."""
    import torch.distributed as dist
    from triton.runtime import driver

    made = FakeDriver()
    driver.set_active(made)
    answers = {"get_rank": 0, "get_world_size": ranks, "get_backend_config": "cpu:gloo,cuda:nccl"}
    patches = [patch.object(dist, name, lambda group=None, a=a: a) for name, a in answers.items()]
    for each in patches:
        each.start()
    try:
        yield made
    finally:
        for each in patches:
            each.stop()


def ready(module: ModuleType, group: object) -> tuple[Any, Any]:
    """Return a source shard in faked symmetric memory, and a result to fill."""
    import torch

    own, home = module._HOST, torch.device("cpu")
    buffer = torch.zeros(-(-own.source_bytes // 16) * 16, dtype=torch.uint8)
    pointers = [buffer.data_ptr()] * len(own.exchange.ranks)
    handle = SimpleNamespace(barrier=lambda channel, timeout_ms: None, signal_pad_size=2048)
    kept = own.processes.kept(group)
    kept["shared"].workspace = module.Place(buffer, handle, pointers)
    kept[None] = home.type, "symmetric"
    module.has_kernels = lambda *_: True
    device_id = own.exchange.ranks[0]
    shape = module.source_shape(device_id)
    shard = buffer.view(own.dtype)[: torch.Size(shape).numel()].view(shape)
    return shard, own.empty(device_id, home)


def microseconds(call: Callable[[], object], calls: int = CALLS) -> float:
    """Return the microseconds of a call: the minimum of REPEATS means over `calls` calls."""
    call()
    taken = []
    for _ in range(REPEATS):
        start = process_time()
        for _ in range(calls):
            call()
        taken.append((process_time() - start) / calls)
    return 1e6 * min(taken)


def measured(name: str, calls: int = CALLS) -> tuple[float, float, float]:
    """Return the microseconds of three kinds of calls: with the tensors of an earlier call, with a
    source shard that a separate launch first copies to symmetric memory, and with new tensors."""
    group = FakeGroup()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triton_gpu.py"
        full = corpus()[name]
        small = tuple(min(extent, SMALL) for extent in full.shape)
        made = plan(dataclasses.replace(full, shape=small), "direct")
        path.write_text(
            parts(
                made,
                "triton_gpu",
                "shardwright emit",
                single_file=True,
                features=("remembered", "symmetric"),
            )[0].text
        )
        module = load(path)
        with faked(made.devices) as driver:
            shard, out = ready(module, group)
            kept = module._HOST.processes.kept(group)

            def forgotten() -> None:
                kept["calls"].clear()
                module.reshard(shard, group, out=out)

            again = microseconds(lambda: module.reshard(shard, group, out=out), calls)
            elsewhere = shard.clone()
            staged = microseconds(lambda: module.reshard(elsewhere, group, out=out), calls)
            found = again, staged, microseconds(forgotten, calls)
            assert driver.launches == 4 * (REPEATS * calls + 1), driver.launches
    return found


def main() -> None:
    table = Table(title="Microseconds of Python a call of reshard(x, group, out=out)")
    table.add_column("reshard")
    for column in ("tensors seen before", "staged", "new tensors"):
        table.add_column(column, justify="right")
    for name in NAMES:
        table.add_row(name, *(f"{taken:.1f}" for taken in measured(name)))
    Console().print(table)
