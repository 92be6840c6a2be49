"""Memory that all processes of a group can read and write."""

import os
import tempfile

import torch
import torch.distributed as dist

from .torch_symmetric import on_all, placed, symmetric


def shared_memory(size, home, group):
    """Return `size` zeroed bytes of this rank's memory, and the addresses at which this process
    reaches the memory of every rank. The memory is symmetric memory on GPUs, else files that all
    processes map. All ranks of the group must call this. Raises RuntimeError on every rank if
    one cannot allocate its memory."""
    if home.type == "cuda":
        place = placed(lambda: symmetric(size, home), group)
        held, places = place.held, place.addresses
        held.zero_()
        torch.cuda.synchronize(home)
        held.handle = place.handle  # kept while peers read it
    else:
        held, places = _mapped(size, group)
    dist.barrier(group)  # peers use the memory only after all of it is zero
    return held, places


def _mapped(size, group):
    """Return this rank's memory in a file, and the addresses at which the files of all ranks are
    mapped."""

    def made():
        file, path = tempfile.mkstemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        os.ftruncate(file, size)
        os.close(file)
        return path, path

    def mapped():
        like = {"shared": True, "size": size, "dtype": torch.uint8}
        return [torch.from_file(each, **like) for each in paths], None

    path, paths = on_all(made, group)
    try:
        found, _ = on_all(mapped, group)
    finally:
        os.unlink(path)
    held = found[dist.get_rank(group)]
    held.peers = found  # kept as long as `held` lives
    return held, [each.data_ptr() for each in found]
