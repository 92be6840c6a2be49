"""The loop of a kernel over the terms of a block: added up, or their maximum or minimum.

The order is that of their numbers on every device, so that replicas of a result are equal bit by
bit. Floats of fewer than 32 bits are reduced as float32 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.emit.python_text import neutral_text
from shardwright.ir.dtypes import is_floating
from shardwright.ir.exchange import Exchange

UNROLLED = 8
"""Up to so many terms are loaded at once, which takes registers for each."""

_TYPES = {
    "bool": "uint8",
    "float8_e4m3fn": "float8e4nv",
    "float8_e5m2": "float8e5",
}


@dataclass(frozen=True)
class Reduced:
    """How the terms of an exchange become values of a dtype."""

    exchange: Exchange
    dtype: str

    @property
    def element(self) -> str:
        """Triton's name of the elements of shards."""
        return f"tl.{_TYPES.get(self.dtype, self.dtype)}"

    @property
    def is_widened(self) -> bool:
        """Whether elements are narrower than what they are reduced as."""
        return is_floating(self.dtype) and self.dtype not in ("float32", "float64")

    @property
    def total(self) -> str:
        """Triton's name of what elements are reduced as."""
        return "tl.float32" if self.is_widened else self.element

    def lines(self, held: list[str], sender: str) -> list[str]:
        """Return the loop, from where a block lies (`read`, `write`, `inside`) to its store;
        `sender`: whose shard has a term, after the lines `held`."""
        count = self.exchange.terms
        start = f"tl.full([BLOCK.rows, BLOCK.columns], {self._identity()}, {self.total})"
        loop = f"tl.static_range({count})" if count <= UNROLLED else f"range({count})"
        loaded = "read_once(shard + read, inside)"
        loaded += f".to({self.total})" if self.is_widened else ""
        stored = f"total.to({self.element})" if self.is_widened else "total"
        return [
            f"total = {start}",
            f"for term in {loop}:",
            *(f"    {line}" for line in held),
            f"    shard = shard_at(peers, {sender}, out, BLOCK)",
            *(f"    {line}" for line in self._combined(loaded)),
            f"tl.store(out + write, {stored}, mask=inside)",
        ]

    def _combined(self, loaded: str) -> list[str]:
        if self.exchange.operator == "sum":
            return [f"total += {loaded}"]
        nan = ", propagate_nan=tl.PropagateNan.ALL" if is_floating(self.dtype) else ""
        return [
            f"loaded = {loaded}",
            f"total = tl.{self.exchange.operator}imum(total, loaded{nan})",
        ]

    def _identity(self) -> str:
        return neutral_text(self.dtype, self.exchange.operator or "sum")
