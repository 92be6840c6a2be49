"""What all modules have of a group: memory that its ranks read, and the call that is under way."""

import ctypes
import functools
import weakref
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

# How long ranks wait for each other at a barrier of symmetric memory.
BARRIER_MS = 600_000
# Tensors of callers meet at so many channels in turn, so that ranks with different ones do not.
CHANNELS = 4
FLAG = 4  # bytes that a rank has for every other at a channel


NOT_SYMMETRIC = "got a tensor that is not in symmetric memory"

# What the driver calls handles of memory that go to other hosts: CU_MEM_HANDLE_TYPE_FABRIC.
FABRIC = 8


class Place(NamedTuple):
    """Memory of this rank that every rank of a group reads: its handle, where that of each rank
    begins for this one, and the channel at which those meet that use it."""

    held: torch.Tensor
    handle: Any
    addresses: list[int]
    channel: int = 0

    def meet(self, number):
        """Wait, on the current stream, until all ranks are here in the call of a number. Calls of
        other numbers meet at other channels, so that ranks in different calls wait in vain."""
        channels = max(1, self.handle.signal_pad_size // (FLAG * len(self.addresses)))
        channel = (self.channel + number) % channels
        self.handle.barrier(channel=channel, timeout_ms=BARRIER_MS)


class Shared:
    """What modules share of a group. `offered`: the places of callers' tensors by address;
    `under_way`: a call that nobody has waited for yet; `number`: that of the last call.

    Every rank counts its calls, those that fail too, and ranks compare their numbers where they
    meet. Without that, a rank that goes on after an error would give the others tiles of its next
    call. A number takes no message that anybody waits for: in an exchange it goes with the tiles
    (`Wire`), in one batch of NCCL; in symmetric memory, where nothing is sent, it chooses the
    channel of the barrier (`Place`). A call that is waited for later keeps the number with which it
    was made. A CUDA graph keeps that of its capture: all ranks replay the same, and none of them
    counts."""

    def __init__(self):
        self.workspace, self.offered, self.under_way, self._remembered = None, {}, None, []
        self.number, self.sides = 0, {}

    def remembered(self):
        """Return a dict for calls that are remembered, until the workspace is another."""
        self._remembered.append({})
        return self._remembered[-1]

    def grown(self, size, home, group):
        """Return the workspace, of so many bytes at least; all ranks ask for the same."""
        if self.workspace is None or len(self.workspace.held) < size:
            self.workspace = placed(lambda: symmetric(size, home), group)
            self._forget()
        return self.workspace

    def _forget(self):
        for calls in self._remembered:
            calls.clear()

    def offer(self, make, group):
        """Let all ranks read and write the tensors that they make, where they are; every rank calls
        this. Return that of this rank."""

        def given():
            tensor = make()
            if _is_ordinary(tensor):
                raise RuntimeError(NOT_SYMMETRIC)
            return tensor

        channel = 1 + len(self.offered) % (CHANNELS - 1)
        place = placed(given, group)._replace(channel=channel)
        self._forget()
        self.offered[address(place.held)] = place
        return place.held


def address(tensor):
    """Return where a tensor begins in its memory, also one without elements."""
    skipped = tensor.storage_offset() * tensor.element_size()
    return tensor.untyped_storage().data_ptr() + skipped


# By group, for as long as that is there.
_SHARED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def shared(group):
    """Return what all modules share of a group."""
    found = _SHARED.get(group)
    return _SHARED.setdefault(group, Shared()) if found is None else found


def _is_ordinary(tensor):
    """Return whether torch knows that peers cannot map a tensor: no symmetric memory is on such a
    device, or the tensor is in the default pool of the caching allocator. `rendezvous` returns at
    once for such a tensor, while the other ranks wait in theirs."""
    if symmetric_memory.get_backend(tensor.device) is None:
        return True
    start, is_used = address(tensor), torch.cuda.is_initialized()
    return any(
        tuple(segment["segment_pool_id"]) == (0, 0)
        and 0 <= start - segment["address"] < segment["total_size"]
        for segment in (torch.cuda.memory_snapshot() if is_used else ())
    )


def placed(make, group):
    """Return the place of the tensor that this rank makes. Every rank calls this; where one cannot,
    RuntimeError is raised on all, with its reason."""

    def met():
        handle = symmetric_memory.rendezvous(held, group)
        if handle is None:
            raise RuntimeError(NOT_SYMMETRIC)
        # Not `handle.offset`: in memory that is pooled, tensors of ranks may begin elsewhere.
        return handle, address(held) - handle.buffer_ptrs[dist.get_rank(group)]

    held, _ = on_all(lambda: (make(), None), group)  # who has none must not be waited for
    handle, starts = on_all(met, group)
    return Place(held, handle, [*map(sum, zip(handle.buffer_ptrs, starts, strict=True))])


def on_all(function, group):
    """Return the first value that a function returns, and the second values of all ranks. Where the
    function raises on one rank, whatever it raises, RuntimeError is raised on every rank."""
    found, mine, why, failed = None, None, "", None
    try:
        found, mine = function()
    except Exception as error:  # the other ranks wait for an answer
        why, failed = in_a_line(error), error
    said: list = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, (why, mine), group=group)
    for number, (why, _) in enumerate(said):
        if why:
            raise RuntimeError(f"rank {number}: {why}") from failed
    return found, [value for _, value in said]


def in_group(group):
    """Return a process group, by default that of all ranks. Raises ValueError where there is
    none."""
    found = dist.group.WORLD if group is None else group
    if found is None:
        raise ValueError("no process group: call torch.distributed.init_process_group before")
    return found


def in_a_line(error):
    """Return the first line of an exception's text, after its type where that says more."""
    text = next(iter(str(error).splitlines()), "")
    expected = type(error) in (RuntimeError, ValueError) and text
    return text if expected else f"{type(error).__name__}: {text}"


def foreign(home):
    """Return why a process's backend of symmetric memory is not to be used, "" where it is."""
    # The barrier of another, NVSHMEM, has been known to do nothing.
    backend = symmetric_memory.get_backend(home)
    return "" if backend in (None, "CUDA") else f"symmetric memory is {backend}'s, expected CUDA's"


@functools.cache
def has_fabric(home):
    """Return whether GPUs of other hosts may read this process's symmetric memory: whether torch
    makes it with a fabric handle. Torch says so to C++ alone, and the driver of any memory."""
    try:
        driver, held = ctypes.CDLL("libcuda.so.1"), symmetric(1, home)
    except (OSError, RuntimeError):
        return False
    handle, properties = ctypes.c_uint64(), (ctypes.c_uint32 * 8)()  # a CUmemAllocationProp
    if driver.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address(held))):
        return False
    failed = driver.cuMemGetAllocationPropertiesFromHandle(properties, handle)
    driver.cuMemRelease(handle)
    return not failed and bool(properties[1] & FABRIC)


def symmetric(size, home):
    """Return so many bytes that peers can map. Raises RuntimeError for a `foreign` backend."""
    if why := foreign(home):
        raise RuntimeError(why)
    if symmetric_memory.get_backend(home) is None:
        symmetric_memory.set_backend("CUDA")
    return symmetric_memory.empty(size, dtype=torch.uint8, device=home)


def finished(steps):
    """Make the steps that a generator has left; return what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
