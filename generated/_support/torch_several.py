"""Access and stream order among several GPUs in one address space."""

import functools
import itertools

import torch


@functools.cache
def let_read(reader, owner):
    """Let kernels on GPU `reader` read the memory of GPU `owner`. Raises ValueError if they cannot.

    A kernel faults on a peer's memory until access is enabled. Torch enables access only for the
    GPU that copies, which is the source in copies between GPUs.
    """
    if not torch.cuda.can_device_access_peer(reader, owner):
        raise ValueError(
            f"{reader} cannot read the memory of {owner}: use `reshard` in a process group"
        )
    torch.empty(1, device=owner).copy_(torch.empty(1, device=reader))


def join_streams(devices):
    """Make the current stream of every GPU wait for the current streams of all others, and let
    every GPU read the memory of all others."""
    gpus = [device for device in devices if device.type == "cuda"]
    for reader, owner in itertools.permutations(gpus, 2):
        let_read(reader, owner)
    events = [torch.cuda.current_stream(gpu).record_event() for gpu in gpus]
    for gpu in gpus:
        for event in events:
            torch.cuda.current_stream(gpu).wait_event(event)
