"""Find races among a matmul's reads and writes, whatever the timing of GPUs.

All devices make some calls in Triton's interpreter, one launch after another, with stand-ins for
streams that only track order. Each program has a vector clock. A launch is ordered after all
earlier work on its stream, and after the streams for which its stream waited. At system scope, a
release publishes the stores that a program made before its last barrier; an acquire learns of
everything released at the same flag. By these clocks, every read of a byte must come after its
write, and every write after earlier reads and writes. Otherwise there is a race, even if the values
happened to be right. The launches of a call, and waits of streams, can be repeated with the same
arguments, like a captured CUDA graph. Imported only by workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from triton.runtime import interpreter

from shardwright.codegen.backends.triton_gpu.verify.addresses import accessed, extent_of, spread
from shardwright.codegen.checks.clocks import Actor, Clock, Race, Watched
from shardwright.codegen.checks.compare import MismatchError

SMS = 5
PULLERS = 2
POLLS = 3
"""The number of a device's processors, of its programs that pull, and of its polls. Few polls
suffice: launches are made in an order in which none has to wait."""


@dataclass
class _Clocked:
    """A program of a launch, or the host (number 0). `said`: its name in messages; `clock`: its
    vector clock; `time`: its own time; `met`: when its threads last met at a barrier."""

    number: int
    said: str
    clock: Clock
    time: int = 1
    met: int = 0

    @property
    def actor(self) -> Actor:
        return Actor(self.number, self.time, self.clock)


@dataclass
class _Timed:
    """A stream, on which each launch is ordered after earlier ones. `made`: the log of launches and
    waits of all streams, as functions that repeat them."""

    made: list[Callable[[], object]]
    clock: Clock = field(default_factory=Clock)

    def wait_stream(self, other: _Timed) -> None:
        """Order this stream's later launches after all work that another stream has so far."""
        self.made.append(partial(self.clock.join, other.clock))
        self.clock.join(other.clock)


class Order:
    """The calls of a matmul by `members`, its devices. Inside `watching`, their accesses are
    checked for races."""

    def __init__(self, members: list[Any]) -> None:
        self._programs = [_Clocked(0, "the host", Clock())]
        self._flags: dict[int, Clock] = {}
        self._made: list[Callable[[], object]] = []
        self._streams = [_Timed(self._made) for _ in members]
        self._stream, self._device = _Timed(self._made), ""
        self._kernel = ""
        self._fault = ""
        self._members = members
        self._memory: list[Watched] = []
        for member in members:
            self._memory += self._watched(member)

    @staticmethod
    def _watched(member: Any) -> Iterator[Watched]:
        name = f"of device {member.of.ids[member.position]}"
        yield Watched(f"what is offered {name}", *extent_of(member.offered))
        yield Watched(f"the terms {name}", *extent_of(member.sums))
        yield Watched(f"the operands {name}", *extent_of(member.arena))
        yield Watched(f"the number of the call {name}", *extent_of(member.state[:1]), written=True)

    def call(self, operands: list[tuple[Any, Any]]) -> list[Any]:
        """Make a call on all devices and return their results. `operands`: the shards of lhs and
        rhs of each device."""
        calls = []
        self._made.clear()
        for number, (member, given) in enumerate(zip(self._members, operands, strict=True)):
            with self._on(number):
                calls.append(member.steps(*given, overlap=member.of.overlap))
        for steps in zip(*calls, strict=True):
            results = []
            for number, step in enumerate(steps):
                with self._on(number):
                    results.append(step())
        self._end()
        return results

    def replay(self) -> None:
        """Repeat the launches and waits of the last call, with the same arguments."""
        for again in self._made[:]:
            again()
        self._end()

    def _end(self) -> None:
        for member in self._members:
            member.ended()
            member.synchronize()

    @contextmanager
    def _on(self, number: int) -> Iterator[None]:
        """Record launches in this context as launches of device `number`, on its first stream."""
        member = self._members[number]
        self._device = f"of device {member.of.ids[member.position]}"
        with self._current(self._streams[number]):
            yield

    @contextmanager
    def _current(self, stream: _Timed) -> Iterator[None]:
        before, self._stream = self._stream, stream
        yield
        self._stream = before

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the launches in this context. Raises MismatchError for the first race."""
        builder, grid = interpreter.interpreter_builder, interpreter.GridExecutor
        kind = type(self._members[0])
        replaced: tuple[tuple[Any, str, Any], ...] = (
            (builder, "create_masked_load", self._load(builder.create_masked_load)),
            (builder, "create_masked_store", self._store(builder.create_masked_store)),
            (builder, "create_atomic_rmw", self._atomic(builder.create_atomic_rmw)),
            (builder, "create_barrier", self._meet),
            (builder, "set_grid_idx", self._begin(builder.set_grid_idx)),
            (grid, "__call__", self._launch(grid.__call__)),
            (kind, "on_gpu", True),
            (sys.modules[kind.__module__], "PULLERS", PULLERS),
            (torch.cuda, "Stream", lambda home: _Timed(self._made)),
            (torch.cuda, "stream", self._current),
            (torch.cuda, "current_stream", lambda home: self._stream),
            (torch.cuda, "synchronize", lambda home: None),
            (torch.cuda, "get_device_properties",
             lambda home: SimpleNamespace(multi_processor_count=SMS)),
        )  # fmt: skip
        with ExitStack() as patches:
            for owner, name, replacement in replaced:
                patches.enter_context(patch.object(owner, name, replacement))
            try:
                yield
            except Exception as error:
                raise MismatchError(self._fault or str(error), fresh=True) from error

    def _launch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def launch(grid: Any, *args: Any, **kwargs: Any) -> Any:
            stream, device = self._stream, self._device

            def again() -> Any:
                self._stream, self._device, self._kernel = stream, device, grid.fn.__name__
                first = len(self._programs)
                found = original(grid, *args, **kwargs)
                for program in self._programs[first:]:
                    stream.clock.join(program.clock)
                    stream.clock.know(program.number, program.time)
                return found

            self._made.append(again)
            return again()

        return launch

    def _begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(x: int, y: int, z: int) -> None:
            original(x, y, z)
            said = f"{self._kernel} {self._device}"
            clock = self._stream.clock.copy()
            self._programs.append(_Clocked(len(self._programs), said, clock))

        return begin

    def _meet(self) -> None:
        program = self._programs[-1]
        program.met = program.time
        program.time += 1

    def _atomic(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def atomic(how: Any, ptr: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
            found = original(how, ptr, value, mask, sem, scope)
            if "SYSTEM" in str(scope):
                flag = self._flags.setdefault(int(ptr.data.ravel()[0]), Clock())
                program, said = self._programs[-1], str(sem)
                if "RELEASE" in said:
                    flag.join(program.clock)
                    flag.know(program.number, program.met)
                if "ACQUIRE" in said:
                    program.clock.join(flag)
            return found

        return atomic

    def _load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(ptrs: Any, mask: Any, other: Any, *how: Any, **named: Any) -> Any:
            for memory, places in self._touched(ptrs, mask):
                self._check(memory, memory.read(places, self._programs[-1].actor))
            return original(ptrs, mask, other, *how, **named)

        return load

    def _store(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def store(ptrs: Any, value: Any, mask: Any, *how: Any) -> Any:
            for memory, places in self._touched(ptrs, mask):
                self._check(memory, memory.write(places, self._programs[-1].actor))
            return original(ptrs, value, mask, *how)

        return store

    def _touched(self, ptrs: Any, mask: Any) -> Iterator[tuple[Watched, Any]]:
        addresses, enabled = accessed(ptrs, mask)
        every = spread(ptrs, addresses[enabled])
        for memory in self._memory:
            places = memory.places(every)
            if len(places):
                yield memory, places

    def _check(self, memory: Watched, race: Race | None) -> None:
        if race is None:
            return
        does = f"{self._programs[-1].said} {race.does} {memory.name}"
        if race.other < 0:
            self._fail(f"{does}, which was never written")
        other = self._programs[race.other].said
        self._fail(f"{does} without waiting for what {other} {race.did} there")

    def _fail(self, fault: str) -> None:
        self._fault = self._fault or fault
        raise MismatchError(fault)
