"""Matmuls among the processes of a group, which has one process for each device.

Shared memory is symmetric memory on GPUs of one host and, for Triton's interpreter, shared files.
"""

import weakref

import torch
import torch.distributed as dist

from .torch_member import Member
from .torch_shared import shared_memory
from .torch_symmetric import foreign, in_a_line, in_group


class MultiplyingRanks:
    """The `Member` of this rank in each group; the calls of a group are sequential."""

    def __init__(self, host):
        self._host = host
        self._met: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def group(self, group):
        """Return a process group; for None, the default group."""
        return in_group(group)

    @torch.no_grad()
    def call(self, a, b, group):
        met = self._met.get(group)
        member = self._meet(a, b, group) if met is None else met
        self._host.check((a, b), member.position)
        if a.device != member.home:
            raise ValueError(f"lhs: got a tensor on {a.device}, expected one on {member.home}")
        for step in member.steps(a, b, overlap=self._host.overlap):
            result = step()
        member.ended()
        return result

    def synchronize(self, group=None):
        """Wait for the calls of a group. Raises RuntimeError if any of them failed."""
        member = self._met.get(self.group(group))
        if member is not None:
            member.synchronize()

    def _meet(self, a, b, group):
        """Return this rank's `Member` after all ranks agree on the matmul. Raises ValueError on
        every rank if they differ or one has a fault."""
        host = self._host
        ranks, position = dist.get_world_size(group), -1
        fault = f"group of {ranks} ranks, expected {len(host.ids)}" * (ranks != len(host.ids))
        if not fault:
            position = host.order[dist.get_rank(group)]
            try:
                host.check((a, b), position)
                fault = foreign(a.device) if a.device.type == "cuda" else ""
            except Exception as error:  # the other ranks wait for a reply
                fault = in_a_line(error)
        said: list = [None] * ranks
        kind = getattr(getattr(a, "device", None), "type", "")
        dist.all_gather_object(said, (fault, host.said, kind), group=group)
        for rank, (problem, *other) in enumerate(said):
            if problem:
                raise ValueError(f"rank {rank}: {problem}")
            if other != list(said[0][1:]):
                first, own = (", ".join(each) for each in (said[0][1:], other))
                raise ValueError(f"ranks differ: rank 0 has {first}, rank {rank} has {own}")
        held, places = shared_memory(host.layout[-1], a.device, group)
        ordered = dict(zip(sorted(host.ids), places, strict=True))
        by_position = [ordered[each] for each in host.ids]
        self._met[group] = member = Member(host, position, held, by_position)
        return member
