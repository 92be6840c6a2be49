"""Checks of the tensors that ranks pass for a model."""

import torch
from torch.distributed.tensor import DTensor

from .models import flat, listed


def checked(state, expected, device, what):
    """Return a device's tensors in the order of `expected`, which has the dtype and shape of each
    buffer by name. Raises ValueError for wrong names, dtypes, shapes, strides or devices."""
    found = dict(flat(state or {}))
    extra = [name for name, x in found.items() if x is not None and name not in expected]
    if extra:
        raise ValueError(f"{what}: got {listed(extra)}, which device {device} does not store")
    for said, names in (
        ("no key", [name for name in expected if name not in found]),
        ("None", [name for name in expected if found.get(name, "") is None]),
    ):
        if names:
            raise ValueError(f"{what}: got {said} for {listed(names)}, expected a tensor for each")
    tensors = [_local(found[name]) for name in expected]
    for x, (name, wanted) in zip(tensors, expected.items(), strict=True):
        got = (x.dtype, tuple(x.shape)) if isinstance(x, torch.Tensor) else type(x).__name__
        if got != wanted or not x.is_contiguous():
            more = ", not contiguous" if got == wanted else ""
            raise ValueError(f"{what}, {name}: got {_said(got)}{more}, expected {_said(wanted)}")
    homes = {x.device for x in tensors}
    if len(homes) > 1 or {x.type for x in homes} - {"cpu", "cuda"}:
        got = listed(sorted(map(str, homes)))
        raise ValueError(f"{what}: got tensors on {got}, expected all on one CPU or GPU")
    return tensors


def home_of(given, out=None, on_gpu=False):
    """Return the device of the tensors; without tensors, the group's communication device."""
    for x in (*given, *dict(flat(out or {})).values()):
        if isinstance(x, torch.Tensor):
            return x.device
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _local(x):
    x = x.to_local() if isinstance(x, DTensor) else x
    return x.detach() if isinstance(x, torch.Tensor) else x


def _said(kind):
    return kind if isinstance(kind, str) else f"{kind[0]} {tuple(kind[1])}"


def check_apart(made, given):
    """Raise ValueError if the tensors `made`, which will be filled, share memory with each other or
    with the tensors `given`."""
    spans = sorted(
        (str(x.device), x.data_ptr(), x.data_ptr() + x.nbytes, is_out)
        for is_out, tensors in ((True, made), (False, given))
        for x in tensors
        if x.nbytes
    )
    end, filled = ("", 0, False), ("", 0)
    for home, start, stop, is_out in spans:
        if filled > (home, start) or (is_out and end[:2] > (home, start)):
            raise ValueError(
                "out: a tensor shares memory with another tensor of out, or with one of state"
            )
        end = max(end, (home, stop, False))
        filled = max(filled, (home, stop)) if is_out else filled


def in_a_line(error):
    """Return an error's message on one line, preceded by its type unless that is ValueError or
    RuntimeError."""
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, ValueError | RuntimeError) else f"{type(error).__name__}: {text}"
    )
