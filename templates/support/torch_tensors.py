"""Checks and tables for kernels, and the devices and streams of launches."""

import contextlib
import functools
import weakref

import torch
import triton

UNITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LINE = 16  # bytes of the widest load and store


def check(tensor, shape, dtype, what):
    """Raise ValueError unless the tensor is contiguous, has this shape and dtype, and is neither a
    DTensor nor a lazily negated view; `what`: its name in the message."""
    # Recognise a DTensor by name: importing its class is slow.
    is_one = isinstance(tensor, torch.Tensor) and type(tensor).__name__ != "DTensor"
    fits = is_one and tuple(tensor.shape) == shape and tensor.dtype == dtype
    if not (fits and tensor.is_contiguous() and not tensor.is_neg()):
        from .torch_told import wrong  # imported on first use

        raise ValueError(f"{what}: {wrong(tensor, shape, dtype)}")


def requires_grad(tensors):
    """Return whether results computed from these tensors require a gradient."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            return torch.is_grad_enabled()
    return False


def check_few(programs):
    """Raise ValueError unless `programs` is an int of at least 1, or None for one program per
    block."""
    if programs is not None and (type(programs) is not int or programs < 1):
        raise ValueError(f"programs: got {programs!r}, expected None or an int of at least 1")


def has_kernels(tensor, kernel):
    """Return whether a kernel can run on a tensor's device: on a GPU, or in Triton's
    interpreter."""
    return tensor.device.type != "cpu" or not isinstance(kernel, triton.JITFunction)


def on(device):
    """Return a context that directs launches to a device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def stream(device):
    """Return the current stream of a device; 0 on the CPU."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def capturing(device):
    """Return whether a CUDA graph is capturing launches on a device."""
    if device.type != "cuda":
        return False
    with on(device):
        return torch.cuda.is_current_stream_capturing()


# Tables by numbers and device, as long as `_table` caches them or a graph keeps them.
MADE: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


@functools.lru_cache(maxsize=256)
def _table(numbers, device, stream):
    pinned = device.type == "cuda"
    table = torch.tensor(numbers, dtype=torch.int64, device="cpu", pin_memory=pinned)
    MADE[numbers, device] = made = table.to(device, non_blocking=True)
    return made


def table(numbers, device):
    """Return integers as an int64 tensor on a device, cached for the current stream."""
    if capturing(device):
        from .torch_graphs import table_of_graph  # imported on first use

        return table_of_graph(tuple(numbers), device)
    return _table(tuple(numbers), device, stream(device))
