"""Calls with tensors that came before, which are moved again without being checked."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_cases import make

from shardwright.codegen.emit.emit import emit
from shardwright.codegen.verify.load import load
from shardwright.ir import Reshard

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


def module_of(reshard: Reshard, folder: Path) -> Any:
    """An emitted module."""
    emit(reshard, ("triton_gpu",)).write(folder / "bundles" / "case")
    return load(folder / "bundles" / "case" / "triton_gpu.py")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of this process."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


ONE = make({"x": 1}, (4, 6), '[{"x"}, {}]', '[{}, {"x"}]')


@pytest.mark.usefixtures("alone")
def test_tensors_that_came_before_are_moved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their elements as they are now, without another check; nothing keeps them alive."""
    module = module_of(ONE, tmp_path)
    processes, checked = module._HOST.processes, []
    check_call = processes._check_call
    seen = lambda *given: (checked.append(given), check_call(*given))[1]  # noqa: E731
    monkeypatch.setattr(processes, "_check_call", seen)
    x, out = torch.zeros(4, 6), torch.empty(4, 6)
    for value in range(3):
        assert module.reshard(x.fill_(value), out=out) is out
        assert out.eq(value).all()
    assert len(checked) == 1
    module.reshard(x, out=out, check=True)
    module.reshard(x, out=torch.empty(4, 6))
    module.reshard(x)
    assert len(checked) == 4
    checked.clear()
    gone = weakref.ref(out)
    del out
    assert gone() is None


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, out: (x.t_(), out), "got (6, 4) of torch.float32, expected (4, 6)"),
        (lambda x, out: (x, out.t_()), "out of device 0: got (6, 4)"),
        (lambda x, out: (x.view(torch.int32), out), "got (4, 6) of torch.int32"),
        (lambda x, out: (x.requires_grad_(), out), "a source shard requires a gradient"),
        (lambda x, out: (x, out.requires_grad_()), "out of device 0: out takes no gradient"),
        (lambda x, out: (x, x), "out of device 0: shares memory with a source shard"),
        (lambda x, out: (x, [out]), "out of device 0: got list, expected a torch.Tensor"),
    ],
)
def test_what_has_changed_since_is_checked(
    change: Callable[[Any, Any], tuple[Any, Any]], said: str, tmp_path: Path
) -> None:
    module = module_of(ONE, tmp_path)
    x, out = torch.zeros(4, 6), torch.empty(4, 6)
    module.reshard(x, out=out)
    x, out = change(x, out)
    with pytest.raises(ValueError, match=re.escape(said)):
        module.reshard(x, out=out)


def test_few_calls_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(ONE, tmp_path)
    processes, group = module._HOST.processes, SimpleNamespace
    prepared = lambda shards, group, outs, *more: (lambda *_: (), outs)  # noqa: E731
    monkeypatch.setattr(processes, "_prepared", prepared)
    x = torch.zeros(4, 6)
    for _ in range(200):
        module.reshard(x, group, out=torch.empty(4, 6))
        kept = [torch.empty(4, 6) for _ in range(3)]
        for out in kept:
            module.reshard(x, group, out=out)
    assert 0 < len(processes._of(group)["calls"]) <= 64
