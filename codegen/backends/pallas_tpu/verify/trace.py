"""Record the events of an emitted Pallas kernel on each device, without moving data.

The kernel's own code runs, with 32-bit integers in place of traced values, and with stand-ins for
`pl`, `pltpu` and `lax` that record signals, waits and copies. That takes no memory for data, so it
works at full size. It finds faults that neither the interpreter nor the compiler finds: a false
`pl.multiple_of`, a window outside its buffer, an index beyond 32 bits, and (in `protocol`) a
missing barrier.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from jax.experimental.pallas import tpu as pltpu

from shardwright.codegen.backends.pallas_tpu.memory import in_memory
from shardwright.codegen.backends.pallas_tpu.verify.buffers import shapes_of
from shardwright.codegen.backends.pallas_tpu.verify.contract import (
    form_of,
    modules_of,
)
from shardwright.codegen.backends.pallas_tpu.verify.events import (
    BARRIER,
    Combine,
    Copy,
    Signal,
    Wait,
    Window,
)
from shardwright.codegen.checks.compare import MismatchError

Event = Signal | Wait | Copy | Combine


def trace(
    module: ModuleType, program: Any, devices: int, sends: bool = True
) -> tuple[tuple[Event, ...], ...]:
    """Return the events of every device, by rank, in the kernels of a module's program.

    `sends`: whether any device lacks part of its target shard. Raises MismatchError for a false
    divisibility hint, a window outside its buffer, an index beyond 32 bits, a negative dividend, or
    a kernel that cannot run with stand-ins.
    """
    return tuple(_run(module, program, rank, sends) for rank in range(devices))


def traced_half(
    module: ModuleType, program: Any, kernel: Callable[..., None]
) -> tuple[tuple[Event, ...], ...]:
    """Return the events of every device, by rank, in a kernel that only starts, or only awaits, a
    program's transfers. Raises MismatchError as `trace` does."""
    found = []
    for rank in range(len(module.SOURCE_IDS)):
        recorder = _Recorder(rank, outside=False)
        with _read(module, recorder):
            kernel(**_arguments(program, kernel, sends=True))
        found.append(tuple(recorder.events))
    return tuple(found)


def traced_product(module: ModuleType, ring: Any) -> tuple[tuple[Event, ...], ...]:
    """Return the events of every device, by position, in a matmul's kernel. Raises MismatchError as
    `trace` does."""
    arrays = [(each.shape, each.dtype) for each in (ring.a, ring.b, ring.c, ring.inbox)]
    _, *names = inspect.signature(ring.kernel).parameters
    given: list[_Ref | _Semaphores] = []
    for name, (shape, dtype) in zip(names, arrays, strict=False):
        given.append(_Ref(name, shape, in_memory(shape, np.dtype(dtype).itemsize)))
    for name, each in zip(names[len(arrays) :], ring.scratch, strict=True):
        in_vmem = each.memory_space == pltpu.VMEM
        given.append(_Ref(name, each.shape) if in_vmem else _Semaphores(name))
    found = []
    for rank, row in enumerate(ring.table()):
        recorder = _Recorder(rank, outside=False)
        with _read(module, recorder):
            ring.kernel(row[None], *given)
        found.append(tuple(recorder.events))
    return tuple(found)


def _run(module: ModuleType, program: Any, rank: int, sends: bool) -> tuple[Event, ...]:
    held = [{*module.SOURCE_IDS}, {*module.TARGET_IDS}]
    device_id = sorted(held[0] | held[1])[rank]
    recorder = _Recorder(rank, outside=not all(device_id in ids for ids in held))
    with _read(module, recorder):
        unpacks = bool(form_of(program).kernels.sending)
        if not unpacks:
            program.kernel(**_arguments(program, program.kernel, sends, rank))
        elif sends:
            program.push_kernel(**_arguments(program, program.push_kernel, sends))
        for block in np.ndindex(program.tiling.blocks) if unpacks else ():
            recorder.block = block
            program.unpack_kernel(**_arguments(program, program.unpack_kernel, sends))
    return tuple(recorder.events)


@contextmanager
def _read(module: ModuleType, recorder: _Recorder) -> Iterator[None]:
    """Let `recorder` record the events of a module's kernels that run in this context. Raises
    MismatchError if they cannot run with stand-ins or compute an index beyond 32 bits."""
    try:
        # On a device outside a mesh, computing its position there may divide by zero; the result is
        # unused.
        with _stand_ins(module, recorder), np.errstate(over="raise", divide="ignore"):
            yield
    except (AttributeError, TypeError, ValueError) as error:
        raise MismatchError(f"the kernel's events cannot be read: {error}") from error
    except (FloatingPointError, OverflowError) as error:
        raise MismatchError(f"an index does not fit 32 bits: {error}") from error


def _arguments(
    program: Any, kernel: Callable[..., None], sends: bool, rank: int = 0
) -> dict[str, Any]:
    shapes = shapes_of(program, sends)
    given: dict[str, Any] = {}
    for name in inspect.signature(kernel).parameters:
        given[name] = _Ref(name, shapes[name]) if name in shapes else _Semaphores(name)
    if "sizes" in given:
        given["sizes"] = _Scalars()
    if "order" in given:
        given["order"] = program.order
    if "moves" in given:
        moves = program.table(np.int32(rank), program.order)
        given["moves"] = np.array(moves, dtype=np.int32).ravel()
    return given


@dataclass(frozen=True)
class _Span:
    """The arguments of a `pl.ds`."""

    start: int
    size: int


class _Scalars(dict[int, int]):
    """The numbers that a kernel stores in SMEM, by index. Reading an index that was not written
    raises MismatchError."""

    def __missing__(self, place: int) -> int:
        raise MismatchError(f"SMEM is read before it is written: index {place}")


class _Semaphores:
    """A semaphore, or an array of semaphores: `semaphores.at[number]` is the name of one."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def at(self) -> _Semaphores:
        return self

    def __getitem__(self, number: object) -> str:
        numbers = number if isinstance(number, tuple) else (number,)
        return f"{self.name}[{', '.join(map(str, numbers))}]"


class _Ref:
    """A buffer, of which `ref.at[...]` is a window. `shape`: its shape as the kernel sees it;
    `room`: its shape in memory, which must contain all windows. Values stored to it are ignored."""

    dtype = None

    def __init__(
        self, name: str, shape: tuple[int, ...], room: tuple[int, ...] | None = None
    ) -> None:
        self.name, self.shape, self.room = name, shape, room or shape

    @property
    def at(self) -> _Ref:
        return self

    def __getitem__(self, key: object) -> Window:
        keys = key if isinstance(key, tuple) else (key,)
        whole = [slice(None)] * (len(self.shape) - len(keys))
        pairs = zip((*keys, *whole), self.shape, strict=True)
        return Window(self.name, tuple(_range(one, extent) for one, extent in pairs), self.room)

    def __setitem__(self, key: object, value: object) -> None:
        pass


def _window(part: _Ref | Window) -> Window:
    return part[()] if isinstance(part, _Ref) else part


def _range(key: object, extent: int) -> tuple[int, int]:
    if isinstance(key, slice):
        return 0, extent
    if isinstance(key, _Span):
        return int(key.start), int(key.size)
    return int(key), 1  # type: ignore[call-overload]


class _Recorder:
    """Stand-ins for the functions that a kernel calls, which record its actions in `events`.

    `outside`: whether the device is missing from one of the meshes; `block`: the indices of the
    current grid step.
    """

    def __init__(self, rank: int, outside: bool) -> None:
        self.rank, self.outside = rank, outside
        self.block: tuple[int, ...] = ()
        self.events: list[Event] = []

    def signal(self, semaphore: object, amount: int, *, device_id: int, **_: object) -> None:
        self.events.append(Signal(_named(semaphore), int(device_id), int(amount)))

    def wait(self, semaphore: object, amount: int) -> None:
        self.events.append(Wait(_named(semaphore), int(amount)))

    def divided(self, number: int) -> int:
        """Return the dividend unchanged. Raises MismatchError if it is negative, because division
        on a TPU does not floor. A device without a position in one mesh may divide negative
        numbers, since it does not use the results."""
        if number < 0 and not self.outside:
            raise MismatchError(f"a negative number is divided: {number}")
        return number

    def combined(self, into: Window, operator: str, *of: Window) -> None:
        found = tuple(each.checked() for each in of)
        self.events.append(Combine(into.checked(), found, operator))

    def start(self, copy: Copy) -> None:
        if copy.read.checked().elements != copy.write.checked().elements:
            raise MismatchError(
                f"copy between windows of different sizes: {copy.read} and {copy.write}"
            )
        self.events.append(copy)

    def remote(
        self,
        source: _Ref | Window,
        target: _Ref | Window,
        sent: object,
        received: object,
        *,
        device_id: int,
        **_: object,
    ) -> SimpleNamespace:
        read, write = _window(source), _window(target)
        copy = Copy(read, write, int(device_id), _named(sent), _named(received))

        def wait_both() -> None:
            self.wait(sent, read.elements)
            self.wait(received, write.elements)

        return SimpleNamespace(
            start=lambda: self.start(copy),
            wait_send=lambda: self.wait(sent, read.elements),
            wait_recv=lambda: self.wait(received, write.elements),
            wait=wait_both,
        )

    def local(
        self, source: _Ref | Window, target: _Ref | Window, semaphore: object
    ) -> SimpleNamespace:
        read, write = _window(source), _window(target)
        copy = Copy(read, write, self.rank, "", _named(semaphore))
        return SimpleNamespace(
            start=lambda: self.start(copy),
            wait=lambda: self.wait(semaphore, write.checked().elements),
        )


def _named(semaphore: object) -> str:
    return semaphore.name if isinstance(semaphore, _Semaphores) else str(semaphore)


def _multiple_of(value: int, divisor: int) -> int:
    if value % divisor:
        raise MismatchError(f"false hint: pl.multiple_of calls {value} a multiple of {divisor}")
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
    """Replace names of JAX's modules, and some support functions, by stand-ins in a module and its
    support modules. Restore them at the end."""
    stand_ins = {
        "pl": SimpleNamespace(
            ds=_Span,
            when=_when,
            multiple_of=_multiple_of,
            semaphore_signal=recorder.signal,
            semaphore_wait=recorder.wait,
            program_id=lambda axis: np.int32(recorder.block[axis]),
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
            zeros=lambda shape, dtype: None,
            minimum=min,
            maximum=max,
        ),
        "np": SimpleNamespace(int32=np.int32),
        "div": lambda a, b: recorder.divided(a) // b,
        "rem": lambda a, b: recorder.divided(a) % b,
        # support functions that compute in VMEM
        "fill": lambda window, chunk, *_: recorder.combined(chunk, "shifted", window),
        "merge": lambda window, y, *_: recorder.combined(y[()], "merged", y[()], window),
        "put": recorder.combined,
        "clear": lambda into: recorder.combined(into, "sum"),
        "put_product": lambda into, a, b: recorder.combined(into, "product", a, b),
        "add_product": lambda into, a, b, _: recorder.combined(into, "product", into, a, b),
        "mask": lambda into, axis, size, _: recorder.combined(
            into, f"from {int(size)} on zero", into
        ),
        "put_sum": lambda into, *of: recorder.combined(into, "sum", *of),
    }
    with ExitStack() as patches:
        for each in modules_of(module):
            used = {name: found for name, found in stand_ins.items() if name in vars(each)}
            patches.enter_context(patch.dict(vars(each), used))
        yield
