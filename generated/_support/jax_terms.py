"""Terms of pending reductions: dimension 0 of a source or target array numbers them."""

from typing import NamedTuple

import numpy as np


class Terms(NamedTuple):
    """Pending reductions. `operator` reduces the terms of the source, `target_operator` the terms
    of the target; `transposed`: whether cotangents move, whose terms all equal the tensor."""

    operator: str = "sum"
    target_operator: str = "sum"
    transposed: bool = False

    def of(self, tensor, count):
        """Return `count` terms that the operator reduces to the tensor; if `transposed`, `count`
        copies of the tensor."""
        if self.transposed:
            return np.stack([tensor] * count)
        # For each element one term decides the result: the others are not larger (max), are larger
        # (min), or are alternately 1 and -1 (sum).
        turn = (np.arange(count).reshape(-1, *[1] * tensor.ndim) - tensor) % count
        others = {"min": tensor + 1, "max": np.maximum(tensor - 1, 0)}
        if self.operator in others:
            return np.where(turn == 0, tensor, others[self.operator])
        own = tensor - (count - 1) % 2
        return np.where(turn == 0, own, np.where(turn % 2, 1, -1))

    def numbered(self, host, tensor):
        """Return the argument of `pad` that represents a tensor, and the result expected from
        `read`."""
        source, target = host.source, host.target
        given = self.of(tensor, source.padded[0]) if source.terms else tensor
        made = target.terms and self.transposed
        return given, np.stack([tensor] * target.padded[0]) if made else tensor

    def read(self, host, result):
        """Return the tensor that an unpadded result represents."""
        if not host.target.terms or self.transposed:
            return result
        return getattr(np.asarray(result, np.float32), self.target_operator)(axis=0)
