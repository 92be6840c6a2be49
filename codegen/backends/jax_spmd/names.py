"""Names of local values: the users' names, plus the operations applied."""

from __future__ import annotations

import keyword
import re

from shardwright.codegen.partition.local.steps import LocalProgram

RESERVED = frozenset(
    {
        *("jax", "jnp", "np", "lax", "P", "Mesh", "AxisType", "NamedSharding"),
        *("program", "like", "MESH", "PIECES", "threefry_2x32"),
    }
)
CHANGED = {
    "slice": "part",
    "mask": "term",
    "all_gather": "whole",
    "all_to_all": "turned",
    "exchange": "turned",
    "all_reduce": "sum",
    "reduce_scatter": "sum",
    "permute": "moved",
}


def function_name(name: str) -> str:
    """Return the name of the user's function, changed if a module already uses it."""
    return f"{name}_" if name in RESERVED or keyword.iskeyword(name) else name


class LocalNames:
    """A distinct name for every local value."""

    def __init__(self, program: LocalProgram, taken: tuple[str, ...]) -> None:
        self.program = program
        self.taken = {*RESERVED, *taken}

    def fresh(self, name: str) -> str:
        """Return an unused identifier similar to `name`."""
        base = re.sub(r"\W", "_", name)
        base = f"v{base}" if not base or base[0].isdigit() else base
        base = f"{base}_" if keyword.iskeyword(base) else base
        found, number = base, 1
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found

    def of(self, local: int) -> str:
        """Return a name for a local value produced by an op."""
        return self.fresh(self.program.of(local).name)

    def changed(self, local: int, kind: str) -> str:
        """Return a name for a local value produced by a layout change."""
        return self.fresh(f"{self.program.of(local).name}_{CHANGED[kind]}")
