"""Names of local values: the user's names, with suffixes for layout changes."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from shardwright.codegen.ops.table import KINDS, word_of
from shardwright.codegen.partition.local.known import plain_name
from shardwright.codegen.partition.local.steps import CallFunction, Compute, LocalBody, LocalProgram

RESERVED = frozenset(
    {
        *("jax", "jnp", "np", "lax", "P", "Mesh", "AxisType", "NamedSharding"),
        *(
            "program",
            "like",
            "check_keys",
            "MESH",
            "PIECES",
            "CONSTANTS",
            "threefry_2x32",
            "checkpoint_name",
        ),
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
    "replicated_to_unreduced": "term",
    "all_gather": "whole",
    "all_to_all": "turned",
    "all_reduce": "reduced",
    "reduce_scatter": "reduced",
    "permute": "moved",
}


def function_name(name: str) -> str:
    """Return the name of the user's function, with an underscore if the module itself uses that
    name."""
    is_taken = name in RESERVED or name in PADDING_NAMES or keyword.iskeyword(name)
    return f"{name}_" if is_taken else name


STEMS = frozenset(map(word_of, KINDS))
"""The last words of names that tracing gives to values that the user did not name."""


class LocalNames:
    """Distinct names for the local values of one function. `module`: names that the module already
    uses; `parameters`: the function's parameters; `instance`: the name of the first scope, such as
    "Block_0", if the function stands for several scopes; `function`: its name; `shown`: the names
    of values in all functions, after which gradients are named."""

    def __init__(
        self,
        program: LocalProgram,
        module: Iterable[str],
        parameters: Iterable[str] = (),
        instance: str = "",
        function: str = "",
        shown: ShownNames | None = None,
    ) -> None:
        self.program, self.instance, self.function = program, instance, function
        self.module, self.parameters = {*RESERVED, *module}, frozenset(parameters)
        self.taken = {*self.module, *self.parameters}
        self.known = {value.name for value in program.program.values}
        self.called: dict[str, str] = {}  # replacements for names of the program, by name
        self.results: dict[str, str] = {}  # replacements in comments on results
        self.is_layer = shown is not None and bool(function)
        self.is_shared = False  # whether its gradients are those of other values in every call
        self.shown = ShownNames(program) if shown is None else shown

    def inside(
        self, functions: Iterable[str], instance: str = "", function: str = ""
    ) -> LocalNames:
        """Return an empty set of names for another function of the module, which calls
        `functions`."""
        module = {*self.module, *functions}
        return LocalNames(self.program, module, (), instance, function, self.shown)

    def fresh(self, name: str) -> str:
        """Return an unused identifier similar to `name`."""
        base = re.sub(r"\W", "_", name)
        if base.isupper() and len(base) > 1:  # it would look like a constant
            base = base.lower()
        base = f"v{base}" if not base or base[0].isdigit() else base
        base = f"{base}_" if keyword.iskeyword(base) else base
        found, number = base, 1
        while found in self.taken or (number > 1 and self.shown.is_like(base, number)):
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found

    def own(self, local: int) -> str:
        """Return the name of a local value in the user's program, without the number that makes it
        unique: `x` for the third `x`. In a function that stands for several scopes, a scope loses
        its number. The gradient of a value that the module names `x_3` is `d_x_3`."""
        value = self.program.of(local)
        if value.name in self.called:
            return self.called[value.name]
        if not value.gradient_of:
            name = self._unnumbered(value.name)
            return name if value.is_named else self.shown.by_kind(local, name)
        name = "" if self.is_shared else self.shown.gradient(local, self.is_layer)
        if name:
            return name
        return self.shown.by_kind(local, f"bwd_{self._unnumbered(value.gradient_of[0])}")

    def _unnumbered(self, name: str) -> str:
        name, _, _ = name.partition(".")  # the number of a copy
        first = re.sub(r"_\d+$", "", name)
        name = first if first in self.known else name
        if not self.instance:
            return name
        plain = re.sub(r"_\d+$", "", self.instance)
        return re.sub(rf"^(bwd_)?{self.instance}(?=_|$)", rf"\g<1>{plain}", name)

    def of(self, local: int) -> str:
        """Return a name for a local value produced by an op."""
        own = self.own(local)
        is_again = own in self.taken and own.startswith("d_") and self._is_gradient(local)
        name = self.fresh(f"{own}_again" if is_again else own)
        self.shown.show(local, name)
        return name

    def _is_gradient(self, local: int) -> bool:
        return bool(self.program.of(local).gradient_of)

    def changed(self, local: int, op: str) -> str:
        """Return a name for a local value produced by a layout change."""
        is_part = op == "all_gather" and self.program.values[local].layout.used
        suffix = "gathered" if is_part else CHANGED[op]
        self.shown.suffixes.add(suffix)
        return self.fresh(f"{self.own(local)}_{suffix}")


class ShownNames:
    """The names that the functions of a module give to values of the program."""

    def __init__(self, program: LocalProgram) -> None:
        self.program = program
        values = program.program.values
        self.numbers = {value.name: number for number, value in enumerate(values)}
        self.arguments = frozenset(program.program.body.arguments)
        self.given = {v for body in program.functions for v in body.arguments}
        self.names: dict[int, str] = {}  # by the number of the value
        self.taken: dict[int, set[int]] = defaultdict(set)  # the arguments that calls pass it as
        self.parameters: dict[int, str] = {}  # names of these arguments
        self.suffixes: set[str] = set()  # of names of values whose layout changes
        self.kinds = dict(_kinds(program))
        words = "_".join(self.numbers).split("_")
        self.numbered = frozenset(word for word in words if re.fullmatch(r"[A-Za-z]+\d+", word))
        for step in program.body.steps:
            if isinstance(step, CallFunction):
                arguments = program.functions[step.function].arguments
                for operand, own in zip(step.operands, arguments, strict=True):
                    self.taken[program.values[operand].value].add(own)

    def show(self, local: int, text: str) -> None:
        """Record the expression with which a function refers to a local value, if it is a name."""
        if text.isidentifier():
            names = self.parameters if local in self.given else self.names
            names[local if local in self.given else self.program.values[local].value] = text

    def is_like(self, base: str, number: int) -> bool:
        """Return whether the program has the same name without the underscore before the number:
        `norm2` beside `norm_2` and `d_norm_2`."""
        return f"{re.sub('^(d|bwd)_', '', base)}{number}" in self.numbered

    def by_kind(self, local: int, name: str) -> str:
        """Return the name of a local value that the user did not name. It ends with the kind of the
        op that produces the value, not of an op that is no longer there."""
        kind = self.kinds.get(self.program.values[local].value, "")
        word, _, last = name.rpartition("_")
        is_other = last in STEMS and kind in KINDS and last != word_of(kind)
        return "_".join(filter(None, (word, word_of(kind)))) if is_other else name

    def gradient(self, local: int, is_layer: bool) -> str:
        """Return the name of a local value that is a gradient, after the value whose gradient it
        is, or "" if the module has no name for that value. `is_layer`: whether the name is in a
        function for several layers."""
        value = self.program.of(local)
        first, *_ = value.gradient_of
        suffix = plain_name(value).removeprefix(f"d_{first}")
        for name in value.gradient_of:
            number = self.numbers[name]
            found = self._called(number, local in self.given)
            if number in self.arguments:
                found = re.sub(r"^.*?_\d+_", "", name) if is_layer else name
            if found:
                return f"d_{found}{suffix}"
        return ""

    def _called(self, number: int, is_given: bool) -> str:
        """Return the name of a value where the forward pass uses it or, for a gradient that is
        passed to a function, where the forward pass produces it."""
        taken = {self.parameters.get(own, "") for own in self.taken[number]}
        if len(taken) == 1 and not is_given and (name := taken.pop()):
            return name
        return self.names.get(self.program.alike.get(number, number), "")


def _kinds(program: LocalProgram) -> Iterator[tuple[int, str]]:
    """Yield each value that an op produces, with the kind of the op."""
    left: list[LocalBody] = [program.body, *program.functions]
    while left:
        for step in left.pop().steps:
            if isinstance(step, Compute):
                left += step.bodies
                yield from ((program.values[v].value, step.op.kind) for v in step.results)
