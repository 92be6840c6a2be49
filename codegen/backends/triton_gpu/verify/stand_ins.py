"""Stand-ins for torch.distributed, symmetric memory and GPUs, for ranks that are threads.

Imported only by workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.backends.triton_gpu.verify.ranks import (
    EMPTY,
    Gpu,
    Rank,
    Ranks,
    addresses_of,
    every,
    joined,
)

FILL = torch.Tensor.fill_
Replaced = tuple[Any, str, Any]


class StandIns:
    """The stand-ins for the process group and the GPU driver of all ranks. `on_gpus`: whether
    tensors appear to be on GPUs; `by_pairs`: whether the group has NCCL, with which GPUs can send
    to each other; `kernels`: the number of ranks on which interpreted kernels, which are slow, copy
    listed rows. On the other ranks, torch copies them."""

    def __init__(
        self, ranks: Ranks, *, on_gpus: bool, by_pairs: bool = True, kernels: int = 0
    ) -> None:
        self._ranks, self._on_gpus, self._by_pairs, self._kernels = (
            ranks, on_gpus, by_pairs, kernels,
        )  # fmt: skip

    @contextmanager
    def of(self, module: Any) -> Iterator[None]:
        """Replace, in this context, names of a module, and of the modules that it has already
        imported, by stand-ins."""
        getattr(module._HOST, "processes", None)
        inside = modules_beside(module)
        replaced = [
            (each, name, stand_in(vars(each)[name]))
            for each in inside
            for name, stand_in in self._names().items()
            if name in vars(each)
        ]
        for listed in {vars(each)["Listed"] for each in inside if "Listed" in vars(each)}:
            replaced.append((listed, "__init__", _on_cpu(listed.__init__)))
            replaced.append((listed, "copier", self._copier(listed.copier)))
        for push in {vars(each)["Push"] for each in inside if "Push" in vars(each)}:
            replaced.append((push, "pusher", self._pusher(inside)))
        if self._on_gpus:  # on GPUs, a kernel makes this check
            wires = {vars(each)["Wire"] for each in inside if "Wire" in vars(each)}
            replaced += [(wire, "check", lambda *given: None) for wire in wires]
        with replacing([*replaced, *self._driver(), *self._group()]):
            yield

    def _names(self) -> dict[str, Callable[[Any], Any]]:
        names: dict[str, Callable[[Any], Any]] = {
            "symmetric_memory": lambda _: self._symmetric(),
            "unpacked": self._unpacked,
            "connect": lambda _: lambda *given: None,
            "has_kernels": lambda _: lambda *given: self._has_kernels,
        }
        if self._on_gpus:
            names |= {"device_of": lambda _: lambda *given: Gpu(), "_gpu": lambda _: Gpu}
        return names

    @property
    def _has_kernels(self) -> bool:
        number: int = self._ranks.me.number
        return number < self._kernels

    def _symmetric(self) -> Any:
        return SimpleNamespace(
            get_backend=lambda home: "CUDA",
            empty=lambda size, dtype, device: self._ranks.me.symmetric(
                "symmetric memory", size, dtype
            ),
            rendezvous=_rendezvous,
        )

    def _driver(self) -> list[Replaced]:
        me = partial(getattr, self._ranks, "me")
        return [
            (torch, "empty", self._empty),
            (torch.Tensor, "fill_", lambda *given: self._filled(*given)),
            (torch.Tensor, "record_stream", lambda tensor, stream: None),
            (torch.cuda, "Stream", lambda home=None, **how: me().new_stream()),
            (torch.cuda, "stream", lambda stream: me().on(stream)),
            (torch.cuda, "current_stream", lambda home=None: me().stream),
            (torch.cuda, "device", lambda home: nullcontext()),
            (torch.cuda, "synchronize", lambda home=None: None),
            (torch.cuda, "is_current_stream_capturing", lambda: False),
            (torch.cuda, "memory_snapshot", list),
        ]

    def _group(self) -> list[Replaced]:
        kind = "cpu:gloo,cuda:nccl" if self._by_pairs else "cpu:gloo,cuda:gloo"
        named: dict[str, Any] = {
            "get_rank": lambda group: group.number,
            "get_world_size": lambda group: self._ranks.count,
            "get_process_group_ranks": lambda group: [*range(self._ranks.count)],
            "get_backend_config": lambda group: kind if self._on_gpus else "cpu:gloo",
            "all_gather_object": _gather,
            "all_to_all_single": _exchange,
            "batch_isend_irecv": lambda asked: [each.op(each.tensor, each.peer) for each in asked],
            "barrier": lambda group: group.all_gather(None),
            "isend": "send",
            "irecv": "receive",
            "P2POp": _asked,
        }
        return [(dist, name, stand_in) for name, stand_in in named.items()]

    def _empty(self, *size: Any, device: Any = None, **more: Any) -> Any:
        rank = self._ranks.me
        if rank is None or str(device) == "meta":
            return EMPTY(*size, device=device, **more)
        return rank.watch("memory", EMPTY(*size, **more))

    def _filled(self, tensor: Any, value: object) -> Any:
        if self._ranks.me is not None:
            self._ranks.me.note(writes=every(tensor))
        return FILL(tensor, value)

    def _unpacked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def unpacked(moves: Any, outs: Any, receiver: int) -> Iterator[Any]:
            with original(moves, outs, receiver) as held:
                yield held
            for each, out in zip(held, outs, strict=True):
                if each is not out:
                    self._ranks.me.note(every(each), every(out))

        return unpacked

    def _pusher(self, inside: Sequence[Any]) -> Callable[..., Any]:
        """Return a stand-in for `Push.pusher` that copies boxes by lists of rows. Pushing kernels
        themselves are checked elsewhere, without ranks."""
        listing = next(vars(each) for each in inside if "entries_of" in vars(each))

        def pusher(
            push: Any, move: Any, shard: Any, addresses: Any, device: int, programs: Any = None
        ) -> Any:
            exchange = move.exchange
            sender, to = exchange.source_position(device), exchange.target_position(device)
            held = exchange.source.box(sender)
            entries = [
                entry
                for piece in exchange.outgoing(sender)
                for entry in listing["entries_of"](
                    piece.box, held, exchange.target.box(piece.receiver),
                    move.itemsize, 0, piece.receiver,
                )
            ]  # fmt: skip
            listed = listing["Listed"](entries, shard.device)

            def run(shard: Any, out: Any) -> None:
                listed.copy((shard.data_ptr(),), addresses)
                if exchange.is_empty(to):
                    out.fill_(move.empty_value)

            return run

        return pusher

    def _copier(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `Listed.copier`, extended to record the bytes of listed rows before copying
        them."""

        def copier(listed: Any, sources: Any, targets: Any, programs: Any = None) -> Any:
            copy = original(listed, sources, targets, programs)
            reads, writes = (
                joined(
                    addresses_of(at[entry[n]] + entry[2 + n], entry.rows, entry[6 + n], entry[4])
                    for entry in listed.entries * self._ranks.noted
                )
                for n, at in enumerate((sources, targets))
            )

            def run() -> None:
                self._ranks.me.note(reads, writes)
                if not self._has_kernels:
                    copy()
                    return
                with quick_launches():
                    copy()

            return run

        return copier


@contextmanager
def replacing(replaced: Sequence[Replaced]) -> Iterator[None]:
    """Replace attributes of objects in this context; `replaced`: (object, name, stand-in) for
    each."""
    with ExitStack() as patches:
        for owner, name, stand_in in replaced:
            patches.enter_context(patch.object(owner, name, stand_in))
        yield


def modules_beside(module: Any) -> list[Any]:
    """Return an emitted module, and all loaded modules of its root package."""
    root = module.__name__.split(".")[0] + "."
    return [each for name, each in [*sys.modules.items()] if name.startswith(root)]


def _rendezvous(held: Any, group: Rank) -> Any:
    _, place = group.turn("rendezvous")
    return SimpleNamespace(
        buffer_ptrs=group.all_gather(held.untyped_storage().data_ptr()),
        offset=held.storage_offset() * held.element_size(),
        barrier=partial(group.meet, place),
        signal_pad_size=2048,
    )


def _gather(said: list[Any], mine: Any, group: Rank) -> None:
    said[:] = group.all_gather(mine)


def _exchange(
    into: Any, given: Any, received: Any, sent: Any, *, group: Rank, async_op: bool
) -> Any:
    works = [group.send(part, to) for to, part in enumerate(given.split(sent))]
    works += [group.receive(part, of) for of, part in enumerate(into.split(received))]
    return SimpleNamespace(wait=lambda: [work.wait() for work in works])


def _asked(op: str, tensor: Any, *, group: Rank, group_peer: int) -> Any:
    return SimpleNamespace(op=getattr(group, op), tensor=tensor, peer=group_peer)


def _on_cpu(original: Callable[..., None]) -> Callable[..., None]:
    return lambda listed, entries, device, *kernel: original(listed, entries, "cpu", *kernel)
