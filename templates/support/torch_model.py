"""Models in one address space, and among the processes of a group.

Processes exchange one bucket after another. In each bucket they send at most one message to each
peer, and they pack the next bucket while one is in flight. A rank without a part in a bucket skips
it. Rank r of a group is the r-th id of all devices, sorted.
"""

import functools

import torch

from .model_boxes import Boxes
from .models import Item, Moves
from .progress_line import shown
from .torch_call import Call, Step, copied
from .torch_state import check_apart, checked, home_of


class Weights:
    """The tensors of a model, to be moved between any devices; `data`: as in `Moves`."""

    def __init__(self, data):
        self.moves = Moves(data)
        self.steps = functools.cache(self._steps)
        self.shapes = functools.cache(self._shapes)
        self.numbers = functools.cache(self._numbers)

    def source_shapes(self, device):
        """Return the shapes of the source buffers of a device, by name."""
        return {name: shape for name, (_, shape) in self.shapes(device, 0).items()}

    def target_shapes(self, device):
        """Return the shapes of the target buffers of a device, by name."""
        return {name: shape for name, (_, shape) in self.shapes(device, 1).items()}

    def local(self, states, *, out=None):
        """Return the target buffers of all devices, as a dict by device id of dicts by name.

        `states`: the source buffers in the same form, all in this process. `out`: target buffers to
        fill, in the same form. Raises ValueError for wrong devices, names, shapes or dtypes.
        """
        moves = self.moves
        given: list = []
        for each, ids, what in (
            (states, moves.source_ids, "states"),
            (out, moves.target_ids, "out"),
        ):
            if each is not None and {*each} != {*ids}:
                raise ValueError(f"{what}: got devices {sorted(each)}, expected {ids}")
        first = {}  # by device, the index of its first source buffer
        for device in moves.source_ids:
            first[device] = len(given)
            given += self.checked(states[device], device, 0, f"states[{device}]")
        home, found = home_of(given), {}
        for device in moves.target_ids:
            made = self.made(out and out[device], device, home, f"out[{device}]")
            check_apart(made, given)
            boxes = Boxes(self, device)
            for member in range(len(moves.members)):
                for moved in moves.of_device(device, Item(member), 1):
                    boxes.keep(member, moved, first[moved.peer])
            copied(boxes.found, given, made)
            found[device] = dict(zip(self.shapes(device, 1), made, strict=True))
        return found

    def __call__(self, state, group=None, *, out=None, progress=None, timeout=None, digest=False):
        """Return this device's target buffers, by name, exchanged with the processes of a group.

        `state`: its source buffers, a dict by name, possibly nested, whose keys joined by dots are
        the names; a DTensor counts as its local tensor; omit tensors that this device does not
        have, or set them to None. `out`: a dict of target buffers to fill; after an error their
        values are undefined. New results have zero padding.

        `progress`: a function called after each bucket of this rank with (bytes of messages moved,
        total bytes, bucket number); by default rank 0 draws a bar if its stderr is a terminal.
        `timeout`: seconds to wait for any rank, by default the group's time-out. `digest`: whether
        every part of a message carries a digest, which receivers check.

        Raises ValueError on all ranks for wrong arguments on any rank, before anything moves;
        RuntimeError on all ranks for a failure on any rank; TimeoutError for a silent rank and
        ConnectionError for a lost rank, after which the group is unusable.
        """
        call = Call(self, group, timeout, digest)
        steps, given, made, slots = call.prepared(state, out, progress)
        call.run(steps, given, made, slots, shown(progress, call.rank == 0))
        return dict(zip(self.shapes(call.device, 1), made, strict=True))

    def _steps(self, device, digest):
        """Return a device's steps: a `Step` for each bucket with data for the device."""
        found, moves = [], self.moves
        for number, bucket in enumerate(moves.buckets):
            sends = moves.messages(device, bucket, 0, digest)
            middle = sends[-1].stop if sends else 0
            receives = moves.messages(device, bucket, 1, digest, middle)
            packs, unpacks, keeps = (Boxes(self, device) for _ in range(3))
            for message in sends:
                for part in message.parts:
                    packs.pack(part)
            for message in receives:
                for part in message.parts:
                    unpacks.unpack(part)
            for item in bucket:
                for moved in moves.of_device(device, item, 1):
                    if moved.peer == device:
                        keeps.keep(item.member, moved)
            size = receives[-1].stop if receives else middle
            if size or keeps.found:
                boxes = (each.found for each in (packs, unpacks, keeps))
                found.append(Step(number, sends, receives, size, *boxes))
        return found

    def _shapes(self, device, end):
        """Return the dtype and the shape of each source buffer (end 0) or target buffer (end 1) of
        a device, by name."""
        return {
            name: (getattr(torch, dtype), shape)
            for _, name, dtype, shape in self.moves.buffers(device, end)
        }

    def _numbers(self, device, end):
        """Return, by member, the indices of its source or target buffers among all such buffers
        of a device. `end`: 0 for source, 1 for target."""
        places = {name: place for place, name in enumerate(self.shapes(device, end))}
        found: dict = {}
        for member, name, *_ in self.moves.buffers(device, end):
            found.setdefault(member, []).append(places[name])
        return found

    def checked(self, state, device, end, what):
        """Return the tensors of `state` in the order of a device's source buffers (end 0) or
        target buffers (end 1). Raises ValueError for wrong tensors."""
        return checked(state, self.shapes(device, end), device, what)

    def made(self, out, device, home, what):
        """Return a device's target buffers: the buffers in `out`, or new zeros on `home`."""
        if out is not None:
            return self.checked(out, device, 1, what)
        shapes = self.shapes(device, 1).values()
        return [torch.zeros(shape, dtype=dtype, device=home) for dtype, shape in shapes]
