"""The boxes that a device copies for its part of a model: into messages, out of them, and
locally."""

from .models import packed, within
from .triton_boxes import Box


class Boxes:
    """The boxes that a device copies, by element size in bytes (`found`)."""

    def __init__(self, model, device):
        self.moves, self.device, self.numbers = model.moves, device, model.numbers
        self.found: dict = {}

    def pack(self, part):
        """Add the boxes that pack a part of a message."""
        own = self.numbers(self.device, 0)[part.member]
        for begin, moved, (buffer, _, loops) in self._placed(part):
            pairs = zip(loops, packed(loops), strict=True)
            steps = tuple((loop[0], loop[1], to) for loop, to in pairs)
            self._add(part.member, (own[buffer], 0), moved, (moved.starts[0], begin), steps)

    def unpack(self, part):
        """Add the boxes that unpack a part of a message."""
        own = self.numbers(self.device, 1)[part.member]
        for begin, moved, (_, buffers, loops) in self._placed(part):
            for place, buffer in enumerate(buffers):
                pairs = zip(loops, packed(loops), strict=True)
                steps = tuple((loop[0], at, loop[2 + place]) for loop, at in pairs)
                starts = begin, moved.starts[1 + place]
                self._add(part.member, (0, own[buffer]), moved, starts, steps)

    def keep(self, member, moved, first=0):
        """Add the direct copies of `moved` from source to target buffers; `first`: the index of
        the sender's first source buffer."""
        source = self.numbers(moved.peer, 0)[member]
        target = self.numbers(self.device, 1)[member]
        buffer, buffers, loops = self._kind(member).forms[moved.form]
        for place, to in enumerate(buffers):
            steps = tuple((loop[0], loop[1], loop[2 + place]) for loop in loops)
            starts = moved.starts[0], moved.starts[1 + place]
            self._add(member, (first + source[buffer], target[to]), moved, starts, steps)

    def _kind(self, member):
        return self.moves.kinds[self.moves.members[member].kind]

    def _placed(self, part):
        """Yield, for each relay of a part, the offset in elements that its element 0 has, or
        would have, in the buffer of all messages; its moved elements; and its form."""
        kind = self._kind(part.member)
        begin = part.start // kind.itemsize
        for moved in part.moved:
            yield begin - moved.low, moved, kind.forms[moved.form]
            begin += moved.high - moved.low

    def _add(self, member, ends, moved, starts, steps):
        """Add the boxes of the range of `moved` in nested loops. `ends`: the indices of the
        buffers read and written; `starts`: the first element in both; `steps`: the count of each
        loop and its step in both."""
        found = self.found.setdefault(self._kind(member).itemsize, [])
        for (read, write), loops in within(starts, steps, moved.low, moved.high):
            found.append(Box(ends[0], ends[1], read, write, tuple(loops)))
