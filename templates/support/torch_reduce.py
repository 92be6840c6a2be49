"""The host of an emitted reshard that reduces terms by sum, maximum or minimum.

The kernel reduces the tiles that it pulls. If tiles are packed, or torch copies them, torch first
gathers the terms of a target shard and then reduces them, in the same order and precision.
"""

import math

import torch

from .torch_gpu import Reshard

# Torch cannot add or compare these types; the types on the right give the same result.
ADDED = {torch.uint16: torch.int16, torch.uint32: torch.int32}
COMPARED = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.bool: torch.uint8}


class Reduction(Reshard):
    """One emitted reshard that reduces terms. The first hidden dimension of its exchange indexes
    the terms; each target shard is reduced over that dimension."""

    reduces = True

    def __init__(self, *given, operator="sum", **more):
        self.operator = operator
        super().__init__(*given, **more)
        self.terms = self.exchange.hidden[0]

    def units(self, out, block):
        """Return a target shard in the kernel's units: its elements, booleans as bytes."""
        flat = out.view(-1)
        return flat.view(torch.uint8) if self.dtype == torch.bool else flat

    def before(self, out):
        """Return memory for all terms of a target shard."""
        return torch.empty((self.terms, *out.shape), dtype=self.dtype, device=out.device)

    def after(self, unpacked, out):
        """Reduce terms in the order of their numbers and write the result to `out`. Floats narrower
        than 32 bits are rounded once."""
        total, *others = map(self._number, unpacked)
        if self.operator == "sum":
            total = total + 0  # -0.0 becomes 0.0, as in the kernel
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
        """Return a term in the dtype in which torch reduces terms."""
        if self.dtype.is_floating_point:
            return term if self.dtype == torch.float64 else term.float()
        if self.operator == "sum":
            return term.view(ADDED.get(self.dtype, self.dtype))
        return term.to(COMPARED.get(self.dtype, self.dtype))

    def turns(self):
        """Return the number of examples after which every term has decided every element; for
        booleans, with both values."""
        return self.terms * (2 if self.dtype == torch.bool else 1)

    def example(self, turn, home):
        """Return the terms of example `turn` and their reduction. All elements are small
        integers."""
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
