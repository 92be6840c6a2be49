"""Run loaders that need a real process group: each rank in its own process, over gloo.

All ranks run the same passes at the same time, so that their collectives match. When a rank fails,
the others are ended.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from shardwright.codegen.learn.logical import LogicalTensor
from shardwright.codegen.learn.probe import Buffers, Codes, Load, probed
from shardwright.ir.errors import InputError, in_a_line

TIME_LIMIT = timedelta(minutes=5)
"""The time after which a collective fails if other ranks do not join."""


def probe_in_processes(
    load: Load, tensors: Mapping[str, LogicalTensor], devices: Sequence[int], dtype: str
) -> dict[int, Buffers]:
    """Return the buffers that a loader returns on each device, like `probe`.

    The loader runs in one process per device, in a torch process group over gloo, whose ranks are
    the positions of the devices. Raises InputError if another process cannot import the loader, and
    for the first failure of the loader.
    """
    asked = _pickled(load, tensors, Codes.of(tensors, dtype))
    home = _home(load)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks: dict[Connection, tuple[int, BaseProcess]] = {}
        for rank, device in enumerate(devices):
            mine, theirs = context.Pipe()
            place = (rank, len(devices), device, str(Path(folder) / "group"))
            process: BaseProcess = context.Process(
                target=_run_rank, args=(theirs, place, home, asked)
            )
            process.start()
            theirs.close()
            ranks[mine] = device, process
        try:
            found = _collected(ranks)
        finally:
            for _, process in ranks.values():
                process.kill()
                process.join()
    return {device: found[device] for device in devices}


def _pickled(load: Load, *rest: object) -> bytes:
    try:
        return pickle.dumps((load, *rest))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            "a loader that runs in separate processes must be a module-level function",
            argument="load",
            got=f"{getattr(load, '__qualname__', in_a_line(load))} ({error})".splitlines()[0],
            expected="a function that `from module import name` finds, not a nested one",
        ) from None


def _home(load: Load) -> str:
    name = getattr(load, "__module__", None) or "__main__"
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name == "__main__" or file is None:  # every process runs the script itself
        return ""
    is_package = getattr(module, "__path__", None) is not None
    depth = name.count(".") + is_package
    return str(Path(file).absolute().parents[depth])


def _collected(ranks: Mapping[Connection, tuple[int, BaseProcess]]) -> dict[int, Buffers]:
    found: dict[int, Buffers] = {}
    left = dict(ranks)
    while left:
        for each in wait([*left]):
            assert isinstance(each, Connection)
            device, process = left.pop(each)
            try:
                failed, said = each.recv()
            except EOFError:
                process.join()
                failed, said = True, f"its process ended with exit code {process.exitcode}"
            if failed:
                raise InputError(
                    f"the loader failed on rank {device}",
                    argument="load",
                    got=said,
                    expected="a loader that runs on every rank; a script that calls learn with "
                    "processes=True must do so under `if __name__ == '__main__':`",
                )
            found[device] = said
    return found


def _run_rank(pipe: Connection, place: tuple[int, int, int, str], home: str, asked: bytes) -> None:
    rank, size, device, address = place
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)})
    try:
        import torch.distributed as dist

        if home and home not in sys.path:
            sys.path.insert(0, home)
        load, tensors, codes = pickle.loads(asked)
        dist.init_process_group(
            "gloo", init_method=f"file://{address}", rank=rank, world_size=size, timeout=TIME_LIMIT
        )
        answer: tuple[bool, Any] = False, probed(load, tensors, device, codes, together=True)
        dist.barrier()
        dist.destroy_process_group()
        pipe.send(answer)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(last.filename).name}, line {last.lineno}"
        pipe.send((True, f"{type(error).__name__}: {error} ({at})"))
        with suppress(EOFError):  # exit only when told to, so that other ranks do not fail first
            pipe.recv()
