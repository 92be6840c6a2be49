"""Which tensors torch itself knows to be none that peers can map."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_gpu_calls import ONE, module_of

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


def test_ordinary_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the default pool; not those in a pool of symmetric memory, or in no pool."""
    module = module_of(ONE, tmp_path)
    symmetric = sys.modules[f"{module.__name__.split('.')[0]}._support.torch_symmetric"]
    memory = torch.zeros(96)
    ordinary, pooled, other = memory[:32], memory[32:64], memory[64:]
    segments = [
        {"address": part.data_ptr(), "total_size": 128, "segment_pool_id": pool}
        for part, pool in ((ordinary, (0, 0)), (pooled, (0, 3)))
    ]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    backends = SimpleNamespace(get_backend=lambda device: "CUDA")
    monkeypatch.setattr(symmetric, "symmetric_memory", backends)
    tensors = [ordinary, ordinary[31:], pooled, pooled[31:], other]
    assert [symmetric._is_ordinary(each) for each in tensors] == [True, True, False, False, False]
    backends.get_backend = lambda device: None
    assert symmetric._is_ordinary(other)
