"""Memory of the processes of a group that all of them read and write."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

from .torch_symmetric import symmetric


def shared_memory(size, home, group):
    """Return so many bytes of this rank, zero, and where those of every rank are for this one: on
    GPUs symmetric memory, else files that all map. All ranks of the group call it."""
    if home.type == "cuda":
        held = symmetric(size, home)
        handle = symmetric_memory.rendezvous(held, group)
        places = [place + handle.offset for place in handle.buffer_ptrs]
        held.zero_()
        torch.cuda.synchronize(home)
        held.handle = handle  # as long as it is read by peers
    else:
        held, places = _mapped(size, group)
    dist.barrier(group)  # all are zero
    return held, places


def _mapped(size, group):
    """Return memory of this rank in a file, and where the files of all ranks are mapped."""
    file, path = tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    os.ftruncate(file, size)
    os.close(file)
    paths = [None] * dist.get_world_size(group)
    dist.all_gather_object(paths, path, group=group)
    found = [torch.from_file(each, shared=True, size=size, dtype=torch.uint8) for each in paths]
    dist.barrier(group)  # all have mapped it
    os.unlink(path)
    held = found[dist.get_rank(group)]
    held.peers = found  # as long as this is there
    return held, [each.data_ptr() for each in found]
