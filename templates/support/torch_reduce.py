"""The host of an emitted reshard that reduces terms: to their sum, their maximum or their minimum.

The kernel reduces what it pulls. Where tiles are copied instead, packed or by torch, the terms of a
target shard are gathered and then reduced by torch: in the same order, as the same numbers.
"""

import math

import torch

from .torch_gpu import Reshard

# Torch adds and compares none of these; what it does so gives the same.
ADDED = {torch.uint16: torch.int16, torch.uint32: torch.int32}
COMPARED = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.bool: torch.uint8}


class Reduction(Reshard):
    """One emitted reshard that reduces terms. The first hidden dimension of its exchange numbers
    them, and a target shard is reduced over all of that."""

    reduces = True

    def __init__(self, *given, operator="sum", **more):
        self.operator = operator
        super().__init__(*given, **more)
        self.terms = self.exchange.hidden[0]

    def units(self, out, block):
        """Return a target shard as the kernel takes it: as numbers."""
        flat = out.view(-1)
        return flat.view(torch.uint8) if self.dtype == torch.bool else flat

    def before(self, out):
        """Return memory for all terms of a target shard."""
        return torch.empty((self.terms, *out.shape), dtype=self.dtype, device=out.device)

    def after(self, unpacked, out):
        """Reduce terms in the order of their numbers; floats of fewer than 32 bits are rounded
        once."""
        total, *others = map(self._number, unpacked)
        if self.operator == "sum":
            total = total + 0  # that of -0.0 is 0.0, as in the kernel
        for term in others:
            match self.operator:
                case "sum":
                    total += term
                case "max":
                    total = torch.maximum(total, term)
                case _:
                    total = torch.minimum(total, term)
        is_added = self.operator == "sum" and self.dtype in ADDED
        out.copy_(total.view(self.dtype) if is_added else total.to(self.dtype))

    def _number(self, term):
        """Return a term as what torch reduces."""
        if self.dtype.is_floating_point:
            return term if self.dtype == torch.float64 else term.float()
        if self.operator == "sum":
            return term.view(ADDED.get(self.dtype, self.dtype))
        return term.to(COMPARED.get(self.dtype, self.dtype))

    def turns(self):
        """Return how many examples it takes that every term counts once for every element; as each
        of both values where there are no more."""
        return self.terms * (2 if self.dtype == torch.bool else 1)

    def example(self, turn, home):
        """Return terms before, and after what they are reduced to; all are small integers."""
        count, *kept = self.exchange.held(())
        shape = (*kept, *(self.shape or (1,)))
        number = torch.arange(math.prod(shape), device=home).view(shape)
        term = torch.arange(count, device=home).view(count, *(1 for _ in shape))
        own, counts = 1 + number // count % 3, (number + turn) % count == term
        if self.dtype == torch.bool:
            own = (number // count + turn // count) % 2
        value = torch.where(counts, own, 4 if self.operator == "min" else 0)
        reduced = {"sum": value.sum, "max": value.amax, "min": value.amin}[self.operator]
        return value.to(self.dtype), reduced(dim=0, keepdim=True).to(self.dtype)
