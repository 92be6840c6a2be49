"""What an emitted Pallas kernel does on each device, as events, without moving anything.

The kernel's own text runs with 32-bit integers in place of traced values and with stand-ins for
`pl`, `pltpu` and `lax` that record semaphores and copies. That costs no memory, so it works at full
size, and it sees what neither the interpreter nor the compiler does: a false `pl.multiple_of`, a
window outside its buffer, an index beyond 32 bits, and (in `protocol`) a missing barrier.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from shardwright.codegen.verify.compare import MismatchError

BARRIER = "barrier"


@dataclass(frozen=True)
class Signal:
    """A device adds `amount` to a semaphore of device `to`."""

    semaphore: str
    to: int
    amount: int


@dataclass(frozen=True)
class Wait:
    """A device waits for `amount` of its own semaphore and takes it off."""

    semaphore: str
    amount: int


@dataclass(frozen=True)
class Window:
    """A box of a buffer: (start, size) per dimension."""

    buffer: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        """How many elements the window has."""
        return math.prod(size for _, size in self.ranges)


@dataclass(frozen=True)
class Copy:
    """A device starts a copy to device `to`; `sent` and `received` count its elements."""

    read: Window
    write: Window
    to: int
    sent: str
    received: str


Event = Signal | Wait | Copy


def trace(module: ModuleType, devices: int) -> tuple[tuple[Event, ...], ...]:
    """The events of every device (by rank), in the order of its program.

    Raises MismatchError for a false hint of divisibility, a window outside its buffer, and an
    index that 32 bits do not hold.
    """
    return tuple(_run(module, rank) for rank in range(devices))


def _run(module: ModuleType, rank: int) -> tuple[Event, ...]:
    recorder = _Recorder(rank)
    names = list(inspect.signature(module._kernel).parameters)
    arguments: dict[str, Any] = {name: name for name in names}
    arguments["x"], arguments["y"] = (_Ref(name, shape) for name, shape in _buffers(module))
    if "order" in arguments:
        arguments["order"] = module.ORDER
    try:
        # Where a device is not in a mesh, its position there may divide by zero: it is not used.
        with _stand_ins(module, recorder), np.errstate(over="raise", divide="ignore"):
            module._kernel(**arguments)
    except (FloatingPointError, OverflowError) as error:
        raise MismatchError(f"an index does not fit 32 bits: {error}") from error
    return tuple(recorder.events)


def _buffers(module: ModuleType) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The shapes of the kernel's input and output."""
    if hasattr(module, "SLOT"):
        shapes = ((module.OUT_SLOTS, *module.SLOT), (module.IN_SLOTS, *module.SLOT))
    else:
        shapes = (module.LOCAL_SOURCE_SHAPE or (1,), module.LOCAL_TARGET_SHAPE or (1,))
    return ("x", shapes[0]), ("y", shapes[1])


class _Ref:
    """A buffer: `ref.at[...]` is a window in it."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape

    @property
    def at(self) -> _Ref:
        return self

    def __getitem__(self, key: object) -> Window:
        keys = key if isinstance(key, tuple) else (key,)
        whole = [slice(None)] * (len(self.shape) - len(keys))
        pairs = zip((*keys, *whole), self.shape, strict=True)
        ranges = tuple(_range(one, extent) for one, extent in pairs)
        for (start, size), extent in zip(ranges, self.shape, strict=True):
            if start < 0 or size < 0 or start + size > extent:
                raise MismatchError(
                    f"window outside its buffer: {self.name}{list(ranges)} of {list(self.shape)}"
                )
        return Window(self.name, ranges)


def _range(key: object, extent: int) -> tuple[int, int]:
    if isinstance(key, slice):
        return 0, extent
    if isinstance(key, tuple):
        return int(key[0]), int(key[1])
    return int(key), 1  # type: ignore[call-overload]


class _Recorder:
    """Stand-ins for the names a kernel uses; what it does is noted in `events`."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.events: list[Event] = []

    def signal(self, semaphore: str, amount: int, *, device_id: int, **_: object) -> None:
        self.events.append(Signal(semaphore, int(device_id), int(amount)))

    def wait(self, semaphore: str, amount: int) -> None:
        self.events.append(Wait(semaphore, int(amount)))

    def remote(
        self, read: Window, write: Window, sent: str, received: str, *, device_id: int, **_: object
    ) -> SimpleNamespace:
        copy = Copy(read, write, int(device_id), sent, received)
        return SimpleNamespace(
            start=lambda: self.events.append(copy),
            wait_send=lambda: self.wait(sent, read.elements),
            wait_recv=lambda: self.wait(received, write.elements),
        )

    def local(self, read: Window, write: Window, semaphore: str) -> SimpleNamespace:
        if read.elements != write.elements:
            raise MismatchError(f"copy between windows of two sizes: {read} and {write}")
        copy = Copy(read, write, self.rank, "", semaphore)
        return SimpleNamespace(
            start=lambda: self.events.append(copy),
            wait=lambda: self.wait(semaphore, write.elements),
        )


def _multiple_of(value: int, divisor: int) -> int:
    if value % divisor:
        raise MismatchError(f"false hint: {value} is said to be a multiple of {divisor}")
    return value


def _when(condition: object) -> Callable[[Callable[[], object]], None]:
    def run(body: Callable[[], object]) -> None:
        if condition:
            body()

    return run


def _loop(low: int, high: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    for number in range(int(low), int(high)):
        carry = body(np.int32(number), carry)
    return carry


@contextmanager
def _stand_ins(module: ModuleType, recorder: _Recorder) -> Iterator[None]:
    """The module with its names for jax bound to stand-ins, and back."""
    stand_ins = {
        "pl": SimpleNamespace(
            ds=lambda start, size: (start, size),
            when=_when,
            multiple_of=_multiple_of,
            semaphore_signal=recorder.signal,
            semaphore_wait=recorder.wait,
        ),
        "pltpu": SimpleNamespace(
            get_barrier_semaphore=lambda: BARRIER,
            make_async_remote_copy=recorder.remote,
            make_async_copy=recorder.local,
        ),
        "lax": SimpleNamespace(fori_loop=_loop, axis_index=lambda _: np.int32(recorder.rank)),
        "jnp": SimpleNamespace(
            int32=np.int32,
            where=lambda condition, a, b: a if condition else b,
            logical_not=lambda value: not value,
            minimum=min,
            maximum=max,
        ),
        "np": SimpleNamespace(int32=np.int32),
    }
    before = {name: getattr(module, name) for name in stand_ins}
    for name, stand_in in stand_ins.items():
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for name, own in before.items():
            setattr(module, name, own)
