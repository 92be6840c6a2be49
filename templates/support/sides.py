"""The source or target side of an exchange."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Side(NamedTuple):
    """One side of an exchange. `ids`: the device ids by position; `box`: a function from a position
    to the box of its shard."""

    ids: Sequence[int]
    box: Callable

    def position(self, device_id, name):
        """Return the position of a device. Raises ValueError if it is not in the mesh."""
        if device_id not in self.ids:
            expected = f"a device of the {name} mesh, {[*self.ids]}"
            raise ValueError(f"device {device_id}: expected {expected}")
        return self.ids.index(device_id)
