"""The state that all modules share for a group: memory that its ranks read, and the call in
progress."""

import ctypes
import functools
import weakref
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

# The time-out of a symmetric memory barrier.
BARRIER_MS = 600_000
# The number of first channels: 0 for the workspace, the others in turn for callers' tensors, so
# ranks that pass different tensors wait at different barriers, and time out.
CHANNELS = 4
FLAG = 4  # bytes of a rank's flag for each rank, per channel


NOT_SYMMETRIC = "got a tensor outside symmetric memory"

# The driver's handle type for memory shared with other hosts: CU_MEM_HANDLE_TYPE_FABRIC.
FABRIC = 8


class Place(NamedTuple):
    """Memory of this rank, `held`, that every rank of a group can read. `handle`: torch's handle of
    it; `addresses`: the addresses of every rank's memory in this process; `channel`: the first
    barrier channel for calls that use it."""

    held: torch.Tensor
    handle: Any
    addresses: list[int]
    channel: int = 0

    def meet(self, number):
        """Wait, on the current stream, until all ranks reach call `number`. The number selects the
        barrier channel, so ranks in different calls wait until the time-out."""
        channels = max(1, self.handle.signal_pad_size // (FLAG * len(self.addresses)))
        channel = (self.channel + number) % channels
        self.handle.barrier(channel=channel, timeout_ms=BARRIER_MS)


class Shared:
    """State that modules share for a group. `workspace`: a `Place` for staging; `offered`: the
    places of callers' tensors by address; `under_way`: an asynchronous call that nobody has waited
    for; `number`: the number of the last call; `sides`: streams for asynchronous calls.

    Every rank numbers its calls, including failed calls, and ranks compare these numbers in
    every call. Otherwise a rank that continues after an error would give the others tiles of its
    next call. The comparison needs no extra round trip: an exchange sends the number with the
    tiles (`Wire`), in one NCCL batch; symmetric memory, through which nothing is sent, uses it
    to select the barrier's channel (`Place`). An asynchronous call keeps its number. A CUDA
    graph keeps the number of its capture: all ranks replay the same graph, and replays do not
    count."""

    def __init__(self):
        self.workspace, self.offered, self.under_way, self._remembered = None, {}, None, []
        self.number, self.sides = 0, {}

    def remembered(self):
        """Return a new dict for remembered calls. It is cleared when the shared memory changes."""
        self._remembered.append({})
        return self._remembered[-1]

    def grown(self, size, home, group):
        """Return the workspace, enlarged to at least `size` bytes; all ranks must request the same
        size."""
        if self.workspace is None or len(self.workspace.held) < size:
            self.workspace = placed(lambda: symmetric(size, home), group)
            self._forget()
        return self.workspace

    def _forget(self):
        for calls in self._remembered:
            calls.clear()

    def offer(self, make, group):
        """Let all ranks read and write the tensors that `make` returns on each rank. Return this
        rank's tensor. Every rank must call this. Raises RuntimeError on every rank if a tensor is
        not in symmetric memory."""

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
    """Return a tensor's address, even if it has no elements."""
    skipped = tensor.storage_offset() * tensor.element_size()
    return tensor.untyped_storage().data_ptr() + skipped


# The `Shared` of each group, for the group's lifetime.
_SHARED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def shared(group):
    """Return the state that all modules share for a group."""
    found = _SHARED.get(group)
    return _SHARED.setdefault(group, Shared()) if found is None else found


def _is_ordinary(tensor):
    """Return whether torch can tell that peers cannot map a tensor: its device has no symmetric
    memory, or the tensor is in the default pool of the caching allocator. For such a tensor
    `rendezvous` would return at once, and the other ranks would wait in their `rendezvous`."""
    if symmetric_memory.get_backend(tensor.device) is None:
        return True
    start, is_used = address(tensor), torch.cuda.is_initialized()
    return any(
        tuple(segment["segment_pool_id"]) == (0, 0)
        and 0 <= start - segment["address"] < segment["total_size"]
        for segment in (torch.cuda.memory_snapshot() if is_used else ())
    )


def placed(make, group):
    """Return the `Place` of the tensor that `make` returns. Every rank must call this. If any
    rank fails, all ranks raise RuntimeError with its reason."""

    def met():
        handle = symmetric_memory.rendezvous(held, group)
        if handle is None:
            raise RuntimeError(NOT_SYMMETRIC)
        # Not `handle.offset`: in pooled memory, tensors of other ranks may begin elsewhere.
        return handle, address(held) - handle.buffer_ptrs[dist.get_rank(group)]

    held, _ = on_all(lambda: (make(), None), group)  # a failed rank would not reach `rendezvous`
    handle, starts = on_all(met, group)
    return Place(held, handle, [*map(sum, zip(handle.buffer_ptrs, starts, strict=True))])


def on_all(function, group):
    """Call a function, which returns two values, on all ranks. Return the first value of this rank
    and the second values of all ranks. If the function raises an exception on one rank, every rank
    raises RuntimeError."""
    found, mine, why, failed = None, None, "", None
    try:
        found, mine = function()
    except Exception as error:  # the other ranks wait for a reply
        why, failed = in_a_line(error), error
    said: list = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, (why, mine), group=group)
    for number, (why, _) in enumerate(said):
        if why:
            raise RuntimeError(f"rank {number}: {why}") from failed
    return found, [value for _, value in said]


def in_group(group):
    """Return a process group, by default the group of all ranks. Raise ValueError if there is no
    group."""
    found = dist.group.WORLD if group is None else group
    if found is None:
        raise ValueError("no process group: call torch.distributed.init_process_group first")
    return found


def in_a_line(error):
    """Return the first line of an exception's message, preceded by its type if that adds
    information."""
    text = next(iter(str(error).splitlines()), "")
    expected = type(error) in (RuntimeError, ValueError) and text
    return text if expected else f"{type(error).__name__}: {text}"


def foreign(home):
    """Return the reason why the process's symmetric memory backend is unusable; "" if it is
    usable."""
    # The barrier of another backend, NVSHMEM, was observed to do nothing.
    backend = symmetric_memory.get_backend(home)
    return "" if backend in (None, "CUDA") else f"symmetric memory is {backend}'s, expected CUDA's"


@functools.cache
def has_fabric(home):
    """Return whether GPUs of other hosts may read this process's symmetric memory: whether torch
    allocates it with a fabric handle. Torch exposes this in C++ only; the driver reports it for any
    memory."""
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
    """Return `size` bytes that peers can map. Raises RuntimeError for a `foreign` backend."""
    if why := foreign(home):
        raise RuntimeError(why)
    if symmetric_memory.get_backend(home) is None:
        symmetric_memory.set_backend("CUDA")
    return symmetric_memory.empty(size, dtype=torch.uint8, device=home)


def finished(steps):
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
