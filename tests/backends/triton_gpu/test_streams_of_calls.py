"""Calls that are waited for later, on a GPU that is none: streams, and memory that is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_gpu_calls import ONE, module_of

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


class Streams:
    """Streams as torch hands them out: 32 in turn. `made`: how often one was asked for."""

    def __init__(self) -> None:
        self.made, self.current = 0, self.stream(-1)

    def stream(self, number: int) -> Any:
        return SimpleNamespace(
            cuda_stream=number,
            wait_stream=lambda other: None,
            wait_event=lambda event: None,
            record_event=lambda: SimpleNamespace(device="cuda"),
        )

    def another(self, home: object) -> Any:
        self.made += 1
        return self.stream(self.made % 32)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """These in place of torch's."""
    found = Streams()
    monkeypatch.setattr(torch.cuda, "Stream", found.another)
    monkeypatch.setattr(torch.cuda, "stream", found.on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda home=None: found.current)
    return found


def test_calls_have_one_stream(streams: Streams, tmp_path: Path) -> None:
    """For each device, so that its memory is used again; a result belongs to who waits, too."""
    module = module_of(ONE, tmp_path)
    work = sys.modules[f"{module.__name__.split('.')[0]}._support.torch_async"].Work
    used: list[int] = []
    read: list[Any] = []

    def steps() -> Iterator[None]:
        used.append(streams.current.cuda_stream)
        yield
        return [SimpleNamespace(record_stream=read.append), None]

    for _ in range(40):
        work(steps(), torch.device("cuda", 0), [], streams, list).wait()
    assert ({*used}, streams.made) == ({1}, 1)
    assert read == [streams.current] * 40
    work(steps(), torch.device("cuda", 1), [], streams, list).wait()
    assert (used[-1], streams.made) == (2, 2)


def test_the_latest_calls_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many were made before."""
    module, prepared = module_of(ONE, tmp_path), []
    processes, group, x = module._HOST.processes, SimpleNamespace, torch.zeros(4, 6)

    def prepare(shards: object, group: object, outs: Any, *more: object) -> tuple[Any, Any]:
        prepared.append(outs)
        return lambda *_: (), outs

    monkeypatch.setattr(processes, "_prepared", prepare)
    results = [torch.empty(4, 6) for _ in range(70)]
    for out in results:
        module.reshard(x, group, out=out)
    for out in results[-60:]:
        module.reshard(x, group, out=out)
    assert len(prepared) == 70
