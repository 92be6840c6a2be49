"""Names of local values: the user's names, with suffixes for layout changes."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

from shardwright.codegen.partition.local.steps import LocalProgram

RESERVED = frozenset(
    {
        *("jax", "jnp", "np", "lax", "P", "Mesh", "AxisType", "NamedSharding"),
        *("program", "like", "MESH", "PIECES", "CONSTANTS", "threefry_2x32", "checkpoint_name"),
        *dir(builtins),
    }
)
PADDING_NAMES = (
    *("pad", "unpad", "of_type", "as_in_jit", "shape_in", "with_plain_nodes", "check_tree"),
    "shortened",
)
"""The functions of modules that take or return padded arrays."""
CHANGED = {
    "slice": "part",
    "mask": "term",
    "all_gather": "whole",
    "all_to_all": "turned",
    "exchange": "turned",
    "blocks": "turned",
    "all_reduce": "reduced",
    "reduce_scatter": "reduced",
    "permute": "moved",
    "rounds": "moved",
}


def function_name(name: str) -> str:
    """Return the name of the user's function, with an underscore if the module itself uses that
    name."""
    is_taken = name in RESERVED or name in PADDING_NAMES or keyword.iskeyword(name)
    return f"{name}_" if is_taken else name


class LocalNames:
    """Distinct names for the local values of one function. `module`: names that the module already
    uses; `parameters`: the function's parameters; `instance`: the name of the first scope, such as
    "Block_0", if the function stands for several scopes; `function`: its name."""

    def __init__(
        self,
        program: LocalProgram,
        module: Iterable[str],
        parameters: Iterable[str] = (),
        instance: str = "",
        function: str = "",
    ) -> None:
        self.program, self.instance, self.function = program, instance, function
        self.module, self.parameters = {*RESERVED, *module}, frozenset(parameters)
        self.taken = {*self.module, *self.parameters}
        self.known = {value.name for value in program.program.values}
        self.called: dict[str, str] = {}  # replacements for names of the program, by name
        self.results: dict[str, str] = {}  # replacements in comments on results

    def inside(
        self, functions: Iterable[str], instance: str = "", function: str = ""
    ) -> LocalNames:
        """Return an empty set of names for another function of the module, which calls
        `functions`."""
        return LocalNames(self.program, {*self.module, *functions}, (), instance, function)

    def fresh(self, name: str) -> str:
        """Return an unused identifier similar to `name`."""
        base = re.sub(r"\W", "_", name)
        base = base.lower() if base.isupper() and len(base) > 1 else base  # a constant: capitals
        base = f"v{base}" if not base or base[0].isdigit() else base
        base = f"{base}_" if keyword.iskeyword(base) else base
        found, number = base, 1
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found

    def own(self, local: int) -> str:
        """Return the name of a local value in the user's program, without the number that makes it
        unique: `x` for the third `x`. In a function that stands for several scopes, a scope loses
        its number."""
        name = self.program.of(local).name
        if name in self.called:
            return self.called[name]
        name, _, _ = name.partition(".")  # the number of a copy
        first = re.sub(r"_\d+$", "", name)
        name = first if first in self.known else name
        if not self.instance:
            return name
        plain = re.sub(r"_\d+$", "", self.instance)
        return re.sub(rf"^(d_)?{self.instance}(?=_|$)", rf"\g<1>{plain}", name)

    def of(self, local: int) -> str:
        """Return a name for a local value produced by an op."""
        return self.fresh(self.own(local))

    def changed(self, local: int, kind: str) -> str:
        """Return a name for a local value produced by a layout change."""
        is_part = kind == "all_gather" and self.program.values[local].layout.used
        return self.fresh(f"{self.own(local)}_{'gathered' if is_part else CHANGED[kind]}")
