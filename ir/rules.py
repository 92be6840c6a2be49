"""Rules: the buffers in which the devices of one side store the tensors of a model.

A rule is a glob or a regular expression, and a layout. A layout without tensor names, such as
`_[{tp}]`, stores each matching tensor in a buffer with the tensor's name. A layout that names
tensors, such as

    "*.qkv" = 'stack(0, *.q[{tp}], *.k[{tp}], *.v[{tp}])'

makes one buffer for each tensor that matches the name of the first part. The texts that the holes
of this name match are filled into the holes of the buffer's name and of the other parts' names, in
order. If several rules match a tensor, the first one applies.

`at` restricts a tensor to some positions along axes of the mesh: one position, a list of positions,
or arithmetic with holes: `{ep = "$2 // 4"}` gives position 3 to expert 13.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from shardwright.ir.device_places import DevicePlace, evaluated, position_of, within
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError, in_a_line, known_arguments, suggested, unknown
from shardwright.ir.given import mesh_of, sharding_of
from shardwright.ir.globs import Glob, filled
from shardwright.ir.mesh import Mesh
from shardwright.ir.model import Model, counted
from shardwright.ir.parts import ONLY, BufferLayout, Stack, TensorPart
from shardwright.ir.stored import SHARDING, Stored
from shardwright.ir.text.layout_text import parse_layout

LISTED = 10
"""The maximum number of names that an error lists."""

_KEYS = ("layout", "mesh", "at", "also")
_RULE = '"_[{tp}]", or {layout = "_[{tp}]", mesh = "tp=4", at = {ep = "$2 // 4"}}'


class PlacedBuffer(NamedTuple):
    """A buffer of a model, and the devices that store it."""

    name: str
    tensors: tuple[str, ...]  # the names of its tensors
    layout: BufferLayout  # with "0", "1", … in place of the names in `tensors`
    place: DevicePlace

    def stored(self, model: Model) -> Stored:
        """Return the stored layout of this buffer alone. Tensors are named by number, and the
        device ids are the positions in `place`."""
        tensors = [model.tensors[name] for name in self.tensors]
        shapes = {str(number): tensor.shape for number, tensor in enumerate(tensors)}
        mesh = Mesh(self.place.axes, None if self.place.axes else [0])
        return Stored(mesh, shapes, {"buffer": self.layout}, tensors[0].dtype, partial=True)


@dataclass(frozen=True)
class LayoutRule:
    """A rule of one side of a model: the layout of the tensors that a glob matches."""

    glob: Glob
    layout: Any  # a text, a layout, or a sharding
    mesh: Mesh | None = None  # None: the mesh of the side
    at: tuple[tuple[str, int | str | tuple[int, ...]], ...] = ()  # axes, and positions along each
    also: bool = False  # whether the rule also applies to tensors that earlier rules store

    @staticmethod
    def of(text: str, given: object) -> LayoutRule:
        """Return the rule for the pattern `text`.

        `given`: a layout as text or object, a sharding, or a dict of `layout`, `mesh`, `at` and
        `also`. Raises InputError for an unknown key or a missing layout.
        """
        if not isinstance(given, Mapping):
            return LayoutRule(Glob(text), given)
        for key in given:
            if key not in _KEYS:
                raise unknown("unknown key", str(key), _KEYS, text, _RULE)
        at = given.get("at", {})
        if "layout" not in given or not isinstance(at, Mapping):
            raise InputError(
                "a rule must be a layout, or a table of a layout and, if needed, a mesh and `at`",
                argument=text,
                got=in_a_line(dict(given)),
                expected=_RULE,
            )
        mesh = given.get("mesh")
        places = tuple((str(axis), position_of(text, each)) for axis, each in at.items())
        named = None if mesh is None else mesh_of(mesh, f"{text}, mesh")
        return LayoutRule(Glob(text), given["layout"], named, places, bool(given.get("also")))

    @cached_property
    def read(self) -> BufferLayout | None:
        """The layout as an object; None for a sharding, which depends on the rank of the tensor."""
        if isinstance(self.layout, TensorPart | Stack):
            return self.layout
        if isinstance(self.layout, str) and not SHARDING.match(self.layout):
            return parse_layout(self.layout, self.glob.text)
        return None

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The name of the tensor of each part, as written in the layout."""
        if self.read is None:
            return (ONLY,)
        read = self.read
        return tuple(part.tensor for part in (read.parts if isinstance(read, Stack) else (read,)))

    @cached_property
    def tensor(self) -> Glob:
        """The pattern for the name of the first part: the rule makes a buffer for each tensor
        that matches it. Raises InputError if the rule is a regular expression and its layout has
        names."""
        first = self.parts[0]
        if self.glob.is_regex and first != ONLY:
            raise InputError(
                "the first part of a layout must be _ if its rule is a regular expression",
                argument=self.glob.text,
                got=first,
                expected="_; the stars of later parts stand for groups of the expression",
            )
        return self.glob if first == ONLY else self.glob.named(first)

    @cached_property
    def numbered(self) -> BufferLayout | None:
        """The layout with a number in place of each tensor's name, the same number for the same
        name; None for a sharding."""
        if self.read is None:
            return None
        numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(self.parts))}
        if isinstance(self.read, TensorPart):
            return replace(self.read, tensor="0")
        parts = (replace(part, tensor=numbers[part.tensor]) for part in self.read.parts)
        return replace(self.read, parts=tuple(parts))

    @property
    def said(self) -> str:
        """The text of the layout, followed by the mesh and the positions of the rule, if any."""
        layout = str(self.layout if self.read is None else self.read)
        more = [] if self.mesh is None else [f"on {self.mesh}"]
        more += [f"{axis} = {place}" for axis, place in self.at]
        return ", ".join([layout, *more, *["also"] * self.also])

    def names(self, tensor: str, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of a buffer's tensors, given the name of the first and the texts that
        the holes match."""
        rest = (part for part in dict.fromkeys(self.parts[1:]) if part != self.parts[0])
        return tensor, *(filled(part, values) if "*" in part else part for part in rest)

    def buffer(self, tensor: str, values: tuple[str, ...]) -> str:
        """Return the name of the buffer of a tensor, given the texts that the holes match."""
        if self.parts[0] == ONLY:
            return tensor
        return filled(self.glob.text, values)


@dataclass(frozen=True, init=False, repr=False)
class Rules:
    """One side of a model: a mesh, and rules that map tensor names to layouts. The first rule that
    matches a tensor applies."""

    mesh: Mesh
    rules: tuple[LayoutRule, ...]

    @known_arguments
    def __init__(self, mesh: object, rules: Mapping[str, object] | object) -> None:
        """Read the rules of a side.

        `mesh`: the mesh of rules that do not state a mesh. `rules` maps each glob, or regular
        expression between slashes, to a layout (its text, `sw.stack`, `sw.cut`), to a sharding of
        the tensor, or to a dict of `layout`, `mesh` and `at`. A single layout applies to all
        tensors. Raises InputError for an invalid rule.
        """
        object.__setattr__(self, "mesh", mesh_of(mesh, "mesh"))
        given = rules if isinstance(rules, Mapping) else {"*": rules}
        if not given:
            raise InputError(
                "a side must have at least one rule", argument="rules", expected='{"*": "_[{tp}]"}'
            )
        object.__setattr__(self, "rules", tuple(LayoutRule.of(*each) for each in given.items()))

    def __repr__(self) -> str:
        return f"<Rules: {counted(len(self.rules), 'rule')} on {self.mesh}>"

    @staticmethod
    def of(given: object, argument: str) -> Rules:
        """Return rules unchanged, or convert a stored layout to rules. Raise InputError for
        anything else."""
        if isinstance(given, Rules):
            return given
        if isinstance(given, Stored):
            return Rules(given.mesh, dict(given.buffers))
        raise InputError(
            "a side of a model must be an sw.Rules, or an sw.Stored of every tensor",
            argument=argument,
            got=in_a_line(given),
            expected='sw.Rules("tp=4", {"*.norm.weight": "_", "*": "_[{tp}]"})',
        )

    def place(self, model: Model) -> list[PlacedBuffer]:
        """Return the buffers of a model, in the order of the rules, then of the tensors.

        Raises InputError for tensors that match no rule, for parts that are not tensors of the
        model, for rules that match no tensor, for invalid positions, and for two buffers with the
        same name on one device. The message lists at most ten names.
        """
        return _Placing(self, model).run()


def check_stored(stored: Stored, model: Model, argument: str) -> None:
    """Raise InputError for a stored layout whose shapes or dtypes differ from the model's."""
    for name, tensor in model.tensors.items():
        if name in stored.tensors and (stored.tensors[name], stored.dtype) != tensor[:2]:
            raise InputError(
                "a stored layout must have the shapes and dtypes of the model: nothing is cast",
                argument=f"{argument}, {name}",
                got=f"{stored.dtype}{[*stored.tensors[name]]}",
                expected=f"{tensor.dtype}{[*tensor.shape]}",
            )


class _Placing:
    def __init__(self, side: Rules, model: Model) -> None:
        self.side, self.model = side, model
        self.owner: dict[str, int] = {}  # the index of the first rule that stores each tensor
        self.places: dict[tuple[int, tuple[int, ...]], DevicePlace] = {}
        self.found: list[PlacedBuffer] = []

    def run(self) -> list[PlacedBuffer]:
        for number, rule in enumerate(self.side.rules):
            self._take(number, rule)
        if lacking := [name for name in self.model.tensors if name not in self.owner]:
            raise InputError(
                "every tensor of a model must match a rule",
                got=listed(lacking),
                expected='a rule for them, for example "*" = "_", which stores each tensor whole',
            )
        self._check_names()
        return self.found

    def _take(self, number: int, rule: LayoutRule) -> None:
        """Make the buffers of a rule, for the tensors that no earlier rule stores."""
        tensor, before = rule.tensor, len(self.found)
        matched = False
        for name in self._candidates(tensor):
            values = tensor.match(name)
            if values is None:
                continue
            matched = True
            if rule.also or name not in self.owner:
                self._make(number, rule, name, values)
        if before == len(self.found):
            raise InputError(
                "a rule must match a tensor"
                + (" that no earlier rule matches" if matched else self._near(rule)),
                got=rule.glob.text,
                expected=f"a name of the model, such as {next(iter(self.model.tensors))}",
            )

    def _near(self, rule: LayoutRule) -> str:
        """Return a suffix for a message that suggests the closest glob of names in the model or,
        for a rule without stars, the closest name."""
        tensor = rule.tensor
        if tensor.is_regex:
            return ""
        text = filled(tensor.text, ["*"] * len(tensor.holes))
        names: Iterable[str] = self.model.tensors
        if tensor.holes:
            names = dict.fromkeys(re.sub(r"\d+", "*", name) for name in names)
        if text.startswith("*."):
            count = text.count(".")
            names = {"*." + ".".join(each.split(".")[-count:]): None for each in names}
        return suggested(text, names)

    def _candidates(self, tensor: Glob) -> Iterable[str]:
        if tensor.is_exact:
            return (tensor.text,) if tensor.text in self.model.tensors else ()
        return self.model.tensors

    def _make(self, number: int, rule: LayoutRule, name: str, values: tuple[str, ...]) -> None:
        tensors = rule.names(name, values)
        for each in tensors:
            if each not in self.model.tensors:
                raise unknown(
                    "the parts of a buffer must be tensors of the model",
                    each,
                    self.model.tensors if len(self.model.tensors) < 1000 else (),
                    rule.glob.text,
                    f"a name of the model, in a rule that makes {name}",
                )
            if each in self.owner and not rule.also:
                raise InputError(
                    "a tensor must be in only one buffer, unless its rule has `also`",
                    argument=rule.glob.text,
                    got=f"{each}, already stored by {self.side.rules[self.owner[each]].glob.text}",
                    expected="the rules of stacks before those of single tensors, or also = true",
                )
            self.owner.setdefault(each, number)
        layout = rule.numbered or self._sharded(rule, name)
        buffer = rule.buffer(name, values)
        self.found.append(
            PlacedBuffer(buffer, tensors, layout, self._place(number, rule, name, values))
        )

    def _sharded(self, rule: LayoutRule, name: str) -> BufferLayout:
        shape = self.model.tensors[name].shape
        mesh = self.side.mesh if rule.mesh is None else rule.mesh
        sharding, split, _ = sharding_of(rule.layout, mesh, shape, rule.glob.text, only=True)
        if sharding.unreduced:
            raise InputError(
                "the sharding of a tensor must not have partial sums", argument=rule.glob.text,
                got=sharding, expected="a sharding without unreduced axes",
            )  # fmt: skip
        nested = split == "nested"
        dims = sharding.for_rank(len(shape)).dims
        return TensorPart(
            "0",
            tuple(DimCut(d.axes, "nested" if nested and len(d.axes) > 1 else "flat") for d in dims),
        )

    def _place(
        self, number: int, rule: LayoutRule, name: str, values: tuple[str, ...]
    ) -> DevicePlace:
        """Return the devices that store a tensor: all devices of the mesh, or the devices at the
        rule's positions along axes."""
        mesh = self.side.mesh if rule.mesh is None else rule.mesh
        chosen = {axis: _positions(rule, axis, each, name, values) for axis, each in rule.at}
        key = number, tuple(place for each in chosen.values() for place in (*each, -1))
        if key not in self.places:
            self.places[key] = within(mesh, chosen, rule.glob.text, name)
        return self.places[key]

    def _check_names(self) -> None:
        """Raise InputError for two buffers with the same name on one device."""
        seen: dict[str, set[int]] = {}
        for placed in self.found:
            devices = seen.setdefault(placed.name, set())
            if twice := devices.intersection(placed.place.devices):
                raise InputError(
                    "two buffers with the same name must be on different devices",
                    got=f"{placed.name} twice on device {min(twice)}",
                    expected="a * in the buffer's name for each * of its tensors' names",
                )
            devices.update(placed.place.devices)


def listed(names: Iterable[str]) -> str:
    """Return at most ten names as text, and count the rest."""
    every = list(names)
    more = len(every) - LISTED
    return ", ".join(every[:LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _positions(
    rule: LayoutRule,
    axis: str,
    given: int | str | tuple[int, ...],
    name: str,
    values: tuple[str, ...],
) -> tuple[int, ...]:
    if isinstance(given, tuple):
        return given
    if isinstance(given, int):
        return (given,)
    return (evaluated(given, values, f"{rule.glob.text}, at {axis}", name),)
