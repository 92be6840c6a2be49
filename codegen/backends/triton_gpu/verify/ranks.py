"""All ranks of a group in one process, each as a thread, with stand-ins for the GPU driver and the
process group.

The host code of a module runs unchanged. Launches and messages take effect at once, in program
order, and are recorded: the bytes that they read and write, and the waits for streams, barriers and
messages. So values are checked in one order, and the record shows conflicts in all other orders.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.addresses import Addresses, extent_of
from shardwright.codegen.backends.triton_gpu.verify.bits import fill, to_bits
from shardwright.codegen.backends.triton_gpu.verify.lanes import (
    NOWHERE,
    Access,
    Follow,
    Lane,
    Lanes,
    Meet,
    Take,
    Tell,
)
from shardwright.codegen.backends.triton_gpu.verify.together import StuckError, Together
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.clocks import Watched
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.oracle.definition import Bits

EMPTY = torch.empty
SYMMETRIC_LINE = 128
"""The alignment of symmetric memory, in bytes. On each rank it starts at a different offset of its
allocation, as pooled memory may."""


class Gpu:
    """A stand-in for the GPU on which every tensor appears to be. It compares equal to every
    device."""

    type, index = "cuda", 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.device | Gpu)

    def __hash__(self) -> int:
        return 0


class Stream:
    """A stand-in for a CUDA stream of a rank. It records its events in a lane."""

    device = Gpu()

    def __init__(self, rank: Rank, cuda_stream: int) -> None:
        self._rank, self.cuda_stream, self.lane = rank, cuda_stream, rank.new_lane()

    def wait_stream(self, other: Stream) -> None:
        """Order this stream's later events after the events that another stream has so far."""
        self.lane.wait(other.lane, self._rank.said)

    def record_event(self) -> Any:
        """Return a stand-in for a CUDA event, which follows all events of this stream so far."""
        follow = Follow(self.lane, len(self.lane.events))
        return SimpleNamespace(device=self.device, follow=follow)

    def wait_event(self, event: Any) -> None:
        self.lane.add(event.follow, self._rank.said)


class Rank:
    """A rank, and the stand-in for its process group. `said`: a description of its current action;
    `stream`: its current stream; `lanes`: its recorded events; `memory`: its watched memory;
    `faults`: the errors for wrong values that it read."""

    def __init__(self, of: Ranks, number: int) -> None:
        self.number, self.lanes, self.said = number, list[Lane](), ""
        self.memory, self.faults = list[Watched](), list[MismatchError]()
        self.of, self._counts, self._streams = of, Counter[Any](), itertools.count()
        self._kept = list[Any]()
        self.stream = self.new_stream()

    def new_lane(self) -> Lane:
        self.lanes.append(Lane())
        return self.lanes[-1]

    def new_stream(self, home: object = None) -> Stream:
        return Stream(self, next(self._streams))

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Make a stream the current stream of this context."""
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def note(self, reads: Addresses = NOWHERE, writes: Addresses = NOWHERE) -> None:
        """Record reads and writes of bytes on the current stream. Raises MismatchError for an
        address outside all watched memory."""
        self.stream.lane.add(self._access(reads, writes), self.said)

    def _access(self, reads: Addresses = NOWHERE, writes: Addresses = NOWHERE) -> Access:
        if not self.of.noted:
            return Access()
        self.of.check_owned(reads, self.said)
        self.of.check_owned(writes, self.said)
        return Access(reads, writes)

    def write(self, tensor: Any, bits: Bits) -> None:
        self.note(writes=every(tensor))
        fill(tensor, bits)

    def read(self, tensor: Any, bits: Bits, whole: Bits, name: str) -> None:
        """Read a tensor, as its owner would, and record a fault unless it has the given bits.
        `whole`: the bits of the tensor of which it is a shard; `name`: its name in messages."""
        self.note(reads=every(tensor))
        try:
            compare.same_bits(name, to_bits(tensor), bits, whole)
        except MismatchError as error:
            self.faults.append(error)

    def turn(self, *name: Any) -> tuple[Any, ...]:
        """Return a name followed by how often it has been used, counting this use."""
        self._counts[name] += 1
        return (*name, self._counts[name])

    def meet(self, place: int, channel: int, timeout_ms: int) -> None:
        """Wait for the other ranks at a barrier: on channel `channel` of the shared memory number
        `place`."""
        name = self.turn("barrier", place, channel)
        self.stream.lane.add(Meet(name, self.of.count), self.said)
        self.of.together.all_gather(name, self.number, None)

    def send(self, part: Any, to: int) -> Any:
        """Send bytes to a rank, after the stream's events so far. Return a handle to wait on."""
        name = self.turn("sent", self.number, to)[1:]
        lane = self._message(self._access(reads=every(part)), Tell(name))
        self.of.together.give(name, self.number, part.clone())
        return SimpleNamespace(wait=lambda: self._wait(lane))

    def receive(self, part: Any, of: int) -> Any:
        """Receive bytes from a rank, after the stream's events so far. Return a handle to wait
        on."""
        name = self.turn("received", of, self.number)[1:]
        lane = self._message(Take(name), self._access(writes=every(part)))

        def arrive() -> None:
            self._wait(lane)
            sent = self.of.together.take(name, self.number, of)
            if sent.numel() != part.numel():
                sizes = f"got {sent.numel()} bytes from rank {of}, expected {part.numel()}"
                raise MismatchError(f"{self.said}: {sizes}")
            part.copy_(sent)

        return SimpleNamespace(wait=arrive)

    def _message(self, *events: Any) -> Lane:
        lane = self.new_lane()
        lane.wait(self.stream.lane, self.said)
        for event in events:
            lane.add(event, self.said)
        return lane

    def _wait(self, lane: Lane) -> None:
        self.stream.lane.wait(lane, self.said)

    def watch(self, name: str, tensor: Any) -> Any:
        """Watch the bytes of a tensor from now on, and return the tensor. It is kept alive, so that
        no other tensor gets its address."""
        if self.of.noted and tensor.numel():
            self.memory.append(Watched(f"{name} of rank {self.number}", *extent_of(tensor)))
        self._kept.append(tensor)
        return tensor

    def made(self, name: str, size: int, dtype: Any = torch.uint8) -> Any:
        return self.watch(name, EMPTY(size, dtype=dtype))

    def symmetric(self, name: str, size: int, dtype: Any = torch.uint8) -> Any:
        """Return a new, watched tensor of `size` elements in symmetric memory. The space after it
        is at least as large as the space before any rank's tensor, so an access at another rank's
        offset is harmless."""
        line = SYMMETRIC_LINE // dtype.itemsize
        skipped = line * (1 + 3 * self.number % 4)
        whole = EMPTY(skipped + size + 4 * line, dtype=dtype)
        return self.watch(name, whole[skipped : skipped + size])

    def all_gather(self, value: Any) -> list[Any]:
        """Wait for all ranks, and return the values that they pass, by rank."""
        return self.of.together.all_gather(self.turn("gathered"), self.number, value)


class Ranks:
    """All ranks of a group. `count`: the number of ranks; `noted`: whether their memory accesses
    are recorded, byte by byte."""

    def __init__(self, count: int, *, noted: bool = True) -> None:
        self.count, self.noted, self.together = count, noted, Together(count)
        self._local = threading.local()
        self._ranks = [Rank(self, number) for number in range(count)]
        self._owned: tuple[int, Any, Any] = (0, NOWHERE, NOWHERE)

    def run(self, function: Callable[[Rank], None]) -> None:
        """Run a function on every rank, then check the recorded accesses and values. Raises
        MismatchError for a race, a wrong value or a deadlock."""
        with ThreadPoolExecutor(self.count) as pool:
            done = [pool.submit(self._run, function, rank) for rank in self._ranks]
        faults = [fault for each in done if (fault := each.exception()) is not None]
        for fault in faults:
            if isinstance(fault, MismatchError):
                raise fault
            if not isinstance(fault, StuckError):
                raise MismatchError(f"a rank raised {fault!r}") from fault
        Lanes(*(self._all(of) for of in ("lanes", "memory"))).check()
        for wrong in self._all("faults"):
            raise wrong
        if faults:
            raise MismatchError("deadlock: ranks wait for each other")

    def _all(self, of: str) -> list[Any]:
        return [each for rank in self._ranks for each in [*getattr(rank, of)]]

    def _run(self, function: Callable[[Rank], None], rank: Rank) -> None:
        self._local.rank = rank
        self.together.enter(rank.number)
        try:
            function(rank)
        finally:
            self.together.leave(rank.number)

    @property
    def me(self) -> Any:
        """The rank that this thread runs, or None."""
        return getattr(self._local, "rank", None)

    def check_owned(self, addresses: Addresses, said: str) -> None:
        """Raise MismatchError for an address outside every rank's watched memory."""
        memory = self._all("memory")
        if self._owned[0] != len(memory):
            ends = sorted((each.start, each.stop) for each in memory)
            self._owned = (len(memory), *np.array(ends, dtype=np.uint64).T)
        _, starts, stops = self._owned
        which = np.searchsorted(starts, addresses, side="right") - 1
        if ((which < 0) | (addresses >= stops[which])).any():
            raise MismatchError(f"{said} accesses memory that belongs to no tensor")


def every(tensor: Any) -> Addresses:
    """Return the address of each byte of a contiguous tensor."""
    return np.arange(*extent_of(tensor), dtype=np.uint64)


def addresses_of(start: int, rows: int, apart: int, columns: int) -> Addresses:
    """Return the address of each byte of `rows` rows of `columns` bytes, whose starts are `apart`
    bytes apart."""
    first: Any = start + apart * np.arange(rows, dtype=np.uint64)
    found: Addresses = (first[:, None] + np.arange(columns, dtype=np.uint64)).reshape(-1)
    return found


def joined(parts: Iterable[Addresses]) -> Addresses:
    return np.concatenate([NOWHERE, *parts]).astype(np.uint64)
