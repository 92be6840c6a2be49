"""Calls with tensors that came before, which are moved again without being checked."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from every_feature import EVERY
from gpu_cases import make

from shardwright.codegen.checks.load import load
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir import Reshard

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")


def module_of(reshard: Reshard, folder: Path) -> Any:
    """An emitted module."""
    emit(reshard, ("triton_gpu",), features=EVERY).write(folder / "bundles" / "case")
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
        (lambda x, out: (x, out.requires_grad_()), "out of device 0: got a tensor that requires"),
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
    assert 0 < len(processes.kept(group)["calls"]) <= 64


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("programs", [0, -1, 1.5, True, "4", [2]])
def test_programs_that_are_no_number(programs: object, tmp_path: Path) -> None:
    """Of a first call, of one with tensors that came before, and in one address space."""
    module = module_of(ONE, tmp_path)
    x, out = torch.zeros(4, 6), torch.empty(4, 6)
    said = re.escape(f"programs: got {programs!r}, expected None or an int of at least 1")
    with pytest.raises(ValueError, match=said):
        module.reshard(x, programs=programs)
    module.reshard(x, out=out, programs=2)
    with pytest.raises(ValueError, match=said):
        module.reshard(x, out=out, programs=programs)
    with pytest.raises(ValueError, match=said):
        module.reshard_local([x], programs=programs)


@pytest.mark.usefixtures("alone")
def test_what_is_waited_for_later_takes_no_gradient(tmp_path: Path) -> None:
    """Though there is one; what is right is moved afterwards."""
    emit(ONE, ("triton_gpu",), gradient=True, features=EVERY).write(tmp_path / "bundles" / "case")
    module = load(tmp_path / "bundles" / "case" / "triton_gpu.py")
    x = torch.ones(4, 6, requires_grad=True)
    for _ in range(2):
        said = "async_op does not support gradients: omit it, or detach the source shards"
        with pytest.raises(ValueError, match=said):
            module.reshard(x, async_op=True)
        assert module.reshard(x.detach(), async_op=True).wait().equal(x)
    module.reshard(x).sum().backward()
    assert x.grad.eq(1).all()


FAKE = """
#include <cuda.h>
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    *handle = 7000000000;
    return *(char *)address == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle
) {
    CUmemAllocationProp made = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    made.requestedHandleTypes = ASKED;
    *prop = made;
    return handle == 7000000000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return handle == 7000000000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
"""
HANDLES = {"CU_MEM_HANDLE_TYPE_FABRIC": True, "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": False}


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("handle", HANDLES)
def test_what_a_driver_says_of_memory(
    handle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library of the driver's own declarations in its place: what it is given and what it gives
    are read as C has them. Without a driver, or of memory that it does not know, there is none."""
    module = module_of(ONE, tmp_path)
    there = sys.modules[module.__name__.split(".")[0] + "._support.torch_symmetric"]
    monkeypatch.setattr(there, "symmetric", lambda size, home: torch.full((size,), 1).byte())
    assert not there.has_fabric("a GPU without a driver")
    header = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    source, library = tmp_path / "fake.c", tmp_path / "fake.so"
    source.write_text(FAKE.replace("ASKED", handle))
    command = ["cc", "-shared", "-fPIC", f"-I{header}", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    monkeypatch.setattr(there.ctypes, "CDLL", {"libcuda.so.1": loaded}.__getitem__)
    assert there.has_fabric("a GPU") == HANDLES[handle]
    monkeypatch.setattr(there, "symmetric", lambda size, home: torch.full((size,), 2).byte())
    assert not there.has_fabric("a GPU of other memory")
