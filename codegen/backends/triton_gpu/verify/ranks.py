"""All ranks of a group in one process, each in a thread, on a driver and a group that only note.

The host code of a module runs as it is, and nothing is moved: launches say which bytes they would
read and write, and streams, barriers and messages what they would wait for.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist

from shardwright.codegen.backends.triton_gpu.verify.addresses import Addresses, extent_of
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
from shardwright.codegen.verify.clocks import Watched
from shardwright.codegen.verify.compare import MismatchError

EMPTY = torch.empty
PATIENCE = 100
"""Seconds that a rank waits for the others to agree."""


class _Gpu:
    """A GPU that is not there: where any tensor is."""

    type, index = "cuda", 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.device | _Gpu)

    def __hash__(self) -> int:
        return 0


class _Stream:
    """A stream of a rank, and an event on it."""

    device = _Gpu()

    def __init__(self, rank: Rank, cuda_stream: int) -> None:
        self._rank, self.cuda_stream, self.lane = rank, cuda_stream, rank.new_lane()

    def wait_stream(self, other: _Stream) -> None:
        """Come after what another stream has so far."""
        self.lane.wait(other.lane, self._rank.said)

    def record_event(self) -> Any:
        """Return an event that has what this stream has so far."""
        follow = Follow(self.lane, len(self.lane.events))
        return SimpleNamespace(device=self.device, follow=follow)

    def wait_event(self, event: Any) -> None:
        """Come after an event."""
        self.lane.add(event.follow, self._rank.said)


class Rank:
    """One rank: itself as a process group, and what it has done. `said`: what it does now."""

    def __init__(self, of: Ranks, number: int) -> None:
        self.number, self.lanes, self.said = number, list[Lane](), ""
        self.memory, self._kept = list[Watched](), list[Any]()
        self._of, self._counts, self._streams = of, Counter[Any](), itertools.count()
        self.stream = self.new_stream()

    def new_lane(self) -> Lane:
        """Return a lane with nothing in it."""
        self.lanes.append(Lane())
        return self.lanes[-1]

    def new_stream(self, home: object = None) -> _Stream:
        """Return another stream."""
        return _Stream(self, next(self._streams))

    @contextmanager
    def on(self, stream: _Stream) -> Iterator[None]:
        """Let a stream be the current one."""
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def note(self, reads: Addresses = NOWHERE, writes: Addresses = NOWHERE) -> None:
        """Read and write bytes on the current stream."""
        self.stream.lane.add(Access(reads, writes), self.said)

    def turn(self, *name: Any) -> tuple[Any, ...]:
        """Return a name with how often it was asked for before."""
        self._counts[name] += 1
        return (*name, self._counts[name])

    def meet(self, place: int, channel: int, timeout_ms: int) -> None:
        """Meet the other ranks at a channel of memory that they share."""
        met = Meet(self.turn("barrier", place, channel), self._of.count)
        self.stream.lane.add(met, self.said)

    def send(self, part: Any, to: int) -> Any:
        """Send bytes once what the stream has so far is over; return what waits for that."""
        return self._message(
            Access(reads=every(part)), Tell(self.turn("sent", self.number, to)[1:])
        )

    def receive(self, part: Any, of: int) -> Any:
        """Receive bytes; return what waits for them."""
        return self._message(
            Take(self.turn("received", of, self.number)[1:]), Access(writes=every(part))
        )

    def _message(self, *events: Any) -> Any:
        lane = self.new_lane()
        lane.wait(self.stream.lane, self.said)
        for event in events:
            lane.add(event, self.said)
        return SimpleNamespace(wait=lambda: self.stream.lane.wait(lane, self.said))

    def watch(self, name: str, tensor: Any) -> Any:
        """Return a tensor, whose bytes are watched from now on, and which stays where it is."""
        if tensor.numel():
            self.memory.append(Watched(f"{name} of rank {self.number}", *extent_of(tensor)))
        self._kept.append(tensor)
        return tensor

    def made(self, name: str, size: int, dtype: Any = torch.uint8) -> Any:
        """Return so many elements that are watched."""
        return self.watch(name, EMPTY(size, dtype=dtype))

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        return self._of.all_gather(self.number, value)


class Ranks:
    """So many ranks, on GPUs or on CPUs. `by_pairs`: whether GPUs can send to each other."""

    def __init__(self, count: int, *, on_gpus: bool, by_pairs: bool = True) -> None:
        self.count, self._on_gpus, self._by_pairs = count, on_gpus, by_pairs
        self._values: list[Any] = [None] * count
        self._barrier = threading.Barrier(count)
        self._local = threading.local()
        self._ranks = [Rank(self, number) for number in range(count)]

    def run(self, module: Any, function: Callable[[Rank], None]) -> None:
        """Run a function on every rank, on a module, and check the order of what they do. Raises
        MismatchError."""
        with self._faked(module), ThreadPoolExecutor(self.count) as pool:
            done = [pool.submit(self._run, function, rank) for rank in self._ranks]
        faults = [fault for each in done if (fault := each.exception()) is not None]
        faults.sort(key=lambda fault: isinstance(fault, threading.BrokenBarrierError))
        if faults:
            raise MismatchError(f"ranks cannot be run: {faults[0]!r}") from faults[0]
        lanes, memory = (
            [each for rank in self._ranks for each in getattr(rank, of)]
            for of in ("lanes", "memory")
        )
        Lanes(lanes, memory).check()

    def _run(self, function: Callable[[Rank], None], rank: Rank) -> None:
        self._local.rank = rank
        try:
            function(rank)
        except BaseException:
            self._barrier.abort()
            raise

    @property
    def _me(self) -> Any:
        """The rank of this thread, None of others."""
        return getattr(self._local, "rank", None)

    def all_gather(self, number: int, value: Any) -> list[Any]:
        """Return the values of all ranks, once all have called this."""
        self._values[number] = value
        self._barrier.wait(PATIENCE)
        found = list(self._values)
        self._barrier.wait(PATIENCE)
        return found

    def _empty(self, *size: Any, device: Any = None, **more: Any) -> Any:
        rank = self._me
        if rank is None:
            return EMPTY(*size, device=device, **more)
        return rank.watch("memory", EMPTY(*size, **more))

    def _symmetric(self) -> Any:
        """Return what stands in for torch's symmetric memory."""

        def rendezvous(held: Any, group: Rank) -> Any:
            _, place = group.turn("rendezvous")
            barrier = partial(group.meet, place)
            return SimpleNamespace(
                buffer_ptrs=group.all_gather(held.untyped_storage().data_ptr()),
                barrier=barrier,
                signal_pad_size=2048,
            )

        return SimpleNamespace(
            get_backend=lambda home: "CUDA",
            empty=lambda size, dtype, device: self._me.made("symmetric memory", size, dtype),
            rendezvous=rendezvous,
        )

    @contextmanager
    def _faked(self, module: Any) -> Iterator[None]:
        """Stand in for the group and the driver of a module."""
        root = module.__name__.split(".")[0] + "."
        inside = [each for name, each in [*sys.modules.items()] if name.startswith(root)]
        names: dict[str, Any] = {
            "has_kernels": lambda *_: False,
            "symmetric_memory": self._symmetric(),
            "unpacked": self._unpacked(_only(inside, "unpacked")),
            "connect": lambda *_: None,
        }
        if self._on_gpus:
            names |= {"device_of": lambda *_: _Gpu(), "_gpu": _Gpu}
        replaced: list[tuple[Any, str, Any]] = [
            (each, name, stand_in)
            for each in inside
            for name, stand_in in names.items()
            if name in vars(each)
        ]
        listed = _only(inside, "Listed")
        replaced += [
            (listed, "__init__", _on_cpu(listed.__init__)),
            (listed, "copier", lambda *given: self._copier(*given)),
            (_only(inside, "Wire"), "check", lambda *_: None),
            (torch, "empty", self._empty),
            (torch.Tensor, "fill_", lambda *given: self._filled(*given)),
            (torch.Tensor, "record_stream", lambda tensor, stream: None),
            (torch.cuda, "Stream", lambda home: self._me.new_stream()),
            (torch.cuda, "stream", lambda stream: self._me.on(stream)),
            (torch.cuda, "current_stream", lambda home=None: self._me.stream),
            (torch.cuda, "device", lambda home: nullcontext()),
            (torch.cuda, "is_current_stream_capturing", lambda: False),
            (torch.cuda, "memory_snapshot", list),  # no tensor is in the default pool
            *((dist, name, stand_in) for name, stand_in in self._group().items()),
        ]
        with ExitStack() as patches:
            for owner, name, stand_in in replaced:
                patches.enter_context(patch.object(owner, name, stand_in))
            yield

    def _group(self) -> dict[str, Any]:
        """Return what stands in for torch.distributed."""

        def gather(said: list[Any], mine: Any, group: Rank) -> None:
            said[:] = group.all_gather(mine)

        def exchange(
            into: Any, given: Any, received: Any, sent: Any, *, group: Rank, async_op: bool
        ) -> Any:
            works = [group.send(part, to) for to, part in enumerate(given.split(sent))]
            works += [group.receive(part, of) for of, part in enumerate(into.split(received))]
            return SimpleNamespace(wait=lambda: [work.wait() for work in works])

        def batch(asked: list[Any]) -> list[Any]:
            return [each.op(each.tensor, each.peer) for each in asked]

        def asked(op: str, tensor: Any, *, group: Rank, group_peer: int) -> Any:
            return SimpleNamespace(op=getattr(group, op), tensor=tensor, peer=group_peer)

        kind = "cpu:gloo,cuda:nccl" if self._by_pairs else "cpu:gloo,cuda:gloo"
        return {
            "get_rank": lambda group: group.number,
            "get_world_size": lambda group: self.count,
            "get_backend_config": lambda group: kind if self._on_gpus else "cpu:gloo",
            "all_gather_object": gather,
            "all_to_all_single": exchange,
            "batch_isend_irecv": batch,
            "isend": "send",
            "irecv": "receive",
            "P2POp": asked,
        }

    def _filled(self, tensor: Any, value: object) -> Any:
        if self._me is not None:
            self._me.note(writes=every(tensor))
        return tensor

    def _unpacked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `unpacked`, which notes what torch reduces, as well."""

        @contextmanager
        def unpacked(moves: Any, outs: Any, receiver: int) -> Iterator[Any]:
            with original(moves, outs, receiver) as held:
                yield held
            for each, out in zip(held, outs, strict=True):
                if each is not out:
                    self._me.note(every(each), every(out))

        return unpacked

    def _copier(
        self, listed: Any, sources: Any, targets: Any, programs: object = None
    ) -> Callable[[], None]:
        """Return what notes the bytes of entries, in place of `Listed.copier`."""
        reads, writes = (
            _joined(
                _rows(at[entry[n]] + entry[2 + n], entry.rows, entry[6 + n], entry.columns)
                for entry in listed.entries
            )
            for n, at in enumerate((tuple(sources), tuple(targets)))
        )
        return lambda: self._me.note(reads, writes)


def _only(modules: Sequence[Any], name: str) -> Any:
    """Return what modules have by a name, all the same."""
    (found,) = {vars(each)[name] for each in modules if name in vars(each)}
    return found


def _on_cpu(original: Callable[..., None]) -> Callable[..., None]:
    """Return `Listed.__init__` for where there is no GPU."""
    return lambda listed, entries, device: original(listed, entries, "cpu")


def every(tensor: Any) -> Addresses:
    """Return the address of each byte of a contiguous tensor."""
    return np.arange(*extent_of(tensor), dtype=np.uint64)


def _rows(start: int, rows: int, apart: int, columns: int) -> Addresses:
    first: Any = start + apart * np.arange(rows, dtype=np.uint64)
    found: Addresses = (first[:, None] + np.arange(columns, dtype=np.uint64)).reshape(-1)
    return found


def _joined(parts: Iterable[Addresses]) -> Addresses:
    return np.concatenate([NOWHERE, *parts]).astype(np.uint64)
