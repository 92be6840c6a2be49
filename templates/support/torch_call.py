"""One rank's part of a call that moves a model among the processes of a group."""

import collections
from typing import NamedTuple

import torch
import torch.distributed as dist

from .models import ALIGN, listed
from .torch_agreed import posted, told, waited
from .torch_digest import digest_of
from .torch_state import check_apart, home_of, in_a_line
from .triton_boxes import copy


class Step(NamedTuple):
    """The work of a device in a bucket. `number`: the bucket number; `sends`, `receives`: the
    messages; `size`: their total bytes; `packs`, `unpacks`, `keeps`: the boxes, by element size, to
    copy into the line (the buffer of all messages), out of the line, and from source to target
    buffers."""

    number: int
    sends: list
    receives: list
    size: int
    packs: dict
    unpacks: dict
    keeps: dict


class Call:
    """One rank's part in a call. `model`: the `Weights`; `timeout`, `digest`: as in `Weights`."""

    def __init__(self, model, group, timeout, digest):
        self.model, self.timeout, self.digest = model, timeout, digest
        self.group = dist.group.WORLD if group is None else group
        ranks = model.moves.ranks
        size = dist.get_world_size(self.group)
        if size != len(ranks):
            more = f"; pass group=dist.new_group(range({len(ranks)}))" * (size > len(ranks))
            raise ValueError(f"group of {size} ranks, expected {len(ranks)}{more}")
        self.rank = dist.get_rank(self.group)
        self.device = ranks[self.rank]
        self.config = dist.get_backend_config(self.group)
        self.talks = torch.device("cpu" if "cpu:" in self.config else "cuda")

    def _check_options(self, progress):
        timeout, self.timeout = self.timeout, None  # the group's own, to report a wrong value
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise ValueError(
                f"timeout: got {timeout!r}, expected a positive number of seconds, or None"
            )
        self.timeout = timeout
        if progress is not None and not callable(progress):
            raise ValueError(f"progress: got {progress!r}, expected a function or None")

    def prepared(self, state, out, progress=None):
        """Return the steps, the source and target buffers, and memory for the lines of two steps.
        Raises ValueError on all ranks for a fault on any rank."""
        fault, cause, home = "", None, self.talks
        said = f"model {self.model.moves.plan}, digest={bool(self.digest)}"
        try:
            self._check_options(progress)
            given = self.model.checked(state, self.device, 0, "state")
            home = home_of(given, out, "cuda:nccl" in self.config)
            served = f"{home.type}:nccl" if home.type == "cuda" else "cpu:"
            if served not in self.config:
                raise ValueError(
                    f"got tensors on {home}, expected a device that the group serves: {self.config}"
                )
            steps = self.model.steps(self.device, bool(self.digest))
            made = self.model.made(out, self.device, home, "out")
            check_apart(made, given if out is not None else [])
            size = max((step.size for step in steps), default=0)
            slots = [torch.empty(size, dtype=torch.uint8, device=home) for _ in steps[:2]]
        except Exception as error:  # the other ranks wait for a reply
            fault, cause = in_a_line(error), error
        said += f", tensors on {home.type}"
        self.agree([fault, said], cause, ValueError, "has not called")
        if home.type == "cuda" and self.talks.type == "cpu":
            # NCCL connects all ranks in the first call, and hangs if that is a batch of messages in
            # which some rank has none.
            dist.all_reduce(torch.zeros(1, device=home), group=self.group)
        return steps, given, made, slots

    def agree(self, said, cause, raised, what):
        """Raise an error of type `raised` on every rank if any rank has a fault or if the
        messages of ranks differ. `said`: this rank's fault or "", then any messages; `what`: see
        `told`."""
        every = told(said, self.group, self.talks, self.timeout, what)
        for rank, (fault, *_) in enumerate(every):
            if fault:
                raise raised(f"rank {rank}: {fault}") from cause
        for rank, other in enumerate(every):
            if other != every[0]:
                both = f"rank 0 calls with {every[0][-1]}, rank {rank} with {other[-1]}"
                raise raised(f"ranks differ: {both}")

    def run(self, steps, given, made, slots, progress):
        """Exchange all buckets. After an error, this rank still sends and receives its messages,
        so that no other rank waits for it. At the end all ranks raise RuntimeError."""
        self.error, self.done, self.total = None, 0, sum(step.size for step in steps)
        waiting: collections.deque = collections.deque()
        for place, step in enumerate(steps):
            if len(waiting) == 2:
                self._finish(made, progress, *waiting.popleft())
            line = slots[place % 2]
            self._unless_failed(self._pack, step, given, line)
            waiting.append((step, line, self._posted(step, line)))
            self._unless_failed(copied, step.keeps, given, made)
        while waiting:
            self._finish(made, progress, *waiting.popleft())
        fault = in_a_line(self.error) if self.error else ""
        self.agree([fault], self.error, RuntimeError, "has not ended its call")

    def _unless_failed(self, act, *given):
        if self.error is None:
            try:
                act(*given)
            except Exception as error:
                self.error = error

    def _pack(self, step, given, line):
        copied(step.packs, given, [line])
        if self.digest:
            for message in step.sends:
                for part in message.parts:
                    _digest(line, part).copy_(_digest_now(line, part))

    def _posted(self, step, line):
        """Start to send and receive the messages of a bucket; return their handles, each with its
        description."""
        ops, said, ranks = [], [], self.model.moves.ranks
        ways = (dist.irecv, step.receives, "from"), (dist.isend, step.sends, "to")
        for act, messages, way in ways:
            for message in messages:
                peer = ranks.index(message.peer)
                part = line[message.start : message.stop]
                ends = {"group": self.group, "group_peer": peer, "tag": 1 + step.number}
                ops.append(dist.P2POp(act, part, **ends))
                said.append(self._said(step, message, f"{way} rank {peer}"))
        works = posted(ops, f"rank {self.rank}: bucket {step.number + 1}")
        if len(works) < len(ops):  # NCCL returns one handle for all
            said = [said[0]] * len(works)
        return list(zip(works, said, strict=True))

    def _said(self, step, message, way):
        moves = self.model.moves
        names = listed(moves.members[part.member].target[0] for part in message.parts)
        bucket = f"bucket {step.number + 1} of {len(moves.buckets)}"
        return f"rank {self.rank}: {bucket}, {way} ({names})"

    def _finish(self, made, progress, step, line, works):
        """Wait for the messages of a bucket, and unpack them."""
        for work, said in works:
            waited(work, self.timeout, f"{said} has not gone through")
        self._unless_failed(self._unpack, step, line, made)
        self.done += step.size
        if progress is not None:
            self._unless_failed(progress, self.done, self.total, step.number + 1)

    def _unpack(self, step, line, made):
        for message in step.receives if self.digest else ():
            for part in message.parts:
                if not torch.equal(_digest(line, part), _digest_now(line, part)):
                    name = self.model.moves.members[part.member].target[0]
                    bucket = f"bucket {step.number + 1}"
                    fault = f"device {self.device} did not receive the bytes that device"
                    raise RuntimeError(f"{bucket}, {name}: {fault} {message.peer} sent")
        copied(step.unpacks, [line], made)


def _digest(line, part):
    return line[part.digest : part.start].view(torch.int64)


def _digest_now(line, part):
    return digest_of(line[part.start : -(-part.stop // ALIGN) * ALIGN]).view(1)


def copied(boxes, sources, targets):
    """Copy boxes, given by element size, from source to target tensors."""
    for size, each in boxes.items():
        copy(tuple(each), sources, targets, size)
