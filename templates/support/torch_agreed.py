"""Text messages among the ranks of a group, and waits with time-outs."""

import json
from datetime import timedelta

import torch
import torch.distributed as dist

TOLD = 1024  # bytes of a rank's message
GONE = "the connection closed because a rank ended or its call failed: see its error"
NEW = "make a new process group"


def told(said, group, home, timeout, what):
    """Send a list of strings to all ranks and return the lists of all ranks, each shortened to
    `TOLD` bytes. Raises TimeoutError if a rank's list does not arrive in time, and
    ConnectionError if a rank is gone. `what`: the predicate of the time-out message, such as
    "has not called"."""
    text = json.dumps(said).encode()
    while len(text) > TOLD:
        said = [each[: 3 * len(each) // 4] for each in said]
        text = json.dumps(said).encode()
    mine = torch.tensor([*text.ljust(TOLD)], dtype=torch.uint8).to(home)
    size, me = dist.get_world_size(group), dist.get_rank(group)
    heard = torch.empty(size, TOLD, dtype=torch.uint8, device=home)
    if home.type == "cuda":
        work = dist.all_gather_into_tensor(heard.view(-1), mine, group=group, async_op=True)
        waited(work, timeout, f"rank {me}: some rank {what}")
    else:
        others = [rank for rank in range(size) if rank != me]
        ops = [dist.P2POp(dist.irecv, heard[rank], group=group, group_peer=rank) for rank in others]
        ops += [dist.P2POp(dist.isend, mine, group=group, group_peer=rank) for rank in others]
        works = posted(ops, f"rank {me}: other ranks")
        for rank, work in zip(others * 2, works, strict=True):
            waited(work, timeout, f"rank {me}: rank {rank} {what}")
        heard[me] = mine
    return [json.loads(bytes(each)) for each in heard.tolist()]


def posted(ops, what):
    """Start sends and receives and return their handles. Raises ConnectionError if a peer is
    already gone."""
    try:
        return dist.batch_isend_irecv(ops) if ops else []
    except RuntimeError as error:
        raise ConnectionError(f"{what}: {GONE}; {NEW}") from error


def waited(work, timeout, what):
    """Wait for a message for at most `timeout` seconds, or for the group's time-out if None.
    Raises TimeoutError after that time, and ConnectionError if the peer is gone."""
    try:
        work.wait() if timeout is None else work.wait(timedelta(seconds=timeout))
    except RuntimeError as error:
        said = str(error).lower()
        if ("timed out" in said or "timeout" in said) and "pair closure" not in said:
            long = "the group's time-out" if timeout is None else f"{timeout} s"
            raise TimeoutError(f"{what} within {long}; {NEW}") from error
        raise ConnectionError(f"{what}: {GONE}; {NEW}") from error
