"""The functions that update one leaf, each called for several leaves."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from shardwright.codegen.backends.jax_spmd.calls import listed_words
from shardwright.codegen.backends.jax_spmd.control import BodyWriter
from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.backends.jax_spmd.result_names import ResultPlaces
from shardwright.codegen.partition.local.leaves import LeafUpdate, Results, consecutive, leaves
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
    made,
)
from shardwright.codegen.text.python_text import called, fitted_call, indented


class LeafWriter(BodyWriter, Protocol):
    """An object that writes bodies, and knows which values are filled with one number and which
    operands broadcasting makes implicit."""

    names: LocalNames
    filled: dict[int, Any]
    inline: dict[int, str]
    is_of_leaf: bool

    def of_leaf(self, names: LocalNames) -> Self:
        """Return a writer for the function of a leaf."""


@dataclass(frozen=True)
class _Names:
    """The names for the updates with one key: the name of the function, and the names of operands
    and results. Operands without a name are called as in the first call."""

    function: str
    operands: tuple[str, ...]
    results: tuple[str, ...]


class LeafFunctions:
    """The functions that update one leaf. Writing the first call of a function appends its
    definition to `lines`.

    `starts`: the updates that calls perform, by the results of their first steps.
    """

    def __init__(
        self, program: LocalProgram, names: LocalNames, ends: ResultPlaces, lines: list[str]
    ) -> None:
        self.program, self.names, self.ends, self.lines = program, names, ends, lines
        bodies = (program.body, *program.functions)
        alike: dict[Hashable, list[LeafUpdate]] = defaultdict(list)
        self.starts: dict[tuple[int, ...], LeafUpdate] = {}
        for body, own in zip(bodies, leaves(program), strict=True):
            for leaf in consecutive(body, own):
                self.starts[made(leaf.steps[0])] = leaf
                alike[leaf.key].append(leaf)
        paths = _result_paths(program)
        self.given = {key: self._names(each, paths) for key, each in alike.items()}
        self._written: dict[Hashable, list[str]] = {}

    def functions(self) -> Iterator[str]:
        yield from (own.function for own in self.given.values())

    def update(self, writer: LeafWriter, step: Step, done: set[Results], indent: int) -> list[str]:
        """Return the call that updates a leaf, if this is the first step of the update and the
        writer is not itself writing such a function. Add the steps that the call performs to
        `done`."""
        leaf = self.starts.get(made(step))
        if leaf is None or writer.is_of_leaf:
            return []
        lines = self._call(writer, leaf, indent)
        done.update(map(made, leaf.steps if lines else ()))
        return lines

    def _call(self, writer: LeafWriter, leaf: LeafUpdate, indent: int) -> list[str]:
        """Return the lines of a call. Return none if the update's text differs from the function's,
        because it depends on the leaf's shape."""
        in_order = sorted(leaf.operands, key=lambda v: not self.program.of(v).shape)  # arrays first
        texts = {
            v: writer.inline.get(v) or writer.read(v) for v in in_order if v not in writer.filled
        }
        if leaf.key not in self._written:
            own = self.given[leaf.key]
            said = (
                name or self._said(value, texts.get(value, ""))
                for name, value in zip(own.operands, leaf.operands, strict=True)
            )
            self.given[leaf.key] = replace(own, operands=tuple(said))
        function = self._function(writer, leaf, list(texts))
        if leaf.key not in self._written:
            self._written[leaf.key] = function
            self.lines += ["", "", *function]
        if self._written[leaf.key] != function:
            return []
        own = self.given[leaf.key]
        targets = []
        for value, name in zip(leaf.results, own.results, strict=True):
            is_taken = name in writer.names.parameters
            is_called = self.program.of(value).name in writer.names.called
            new = f"new_{name}" if is_taken else name
            writer.text[value] = writer.names.of(value) if is_called else writer.names.fresh(new)
            targets.append(writer.text[value])
        target = f"{', '.join(targets)} = {own.function}"
        return fitted_call(target, list(texts.values()), "", indent)

    def _function(self, writer: LeafWriter, leaf: LeafUpdate, given: Sequence[int]) -> list[str]:
        own = self.given[leaf.key]
        roles = dict(zip(leaf.operands, own.operands, strict=True))
        names = self.names.inside(self.functions())
        inner = writer.of_leaf(names)
        inner.text.update((value, names.fresh(roles[value])) for value in given)
        for value, name in zip(leaf.results, own.results, strict=True):
            new = f"new_{name}" if name in own.operands else name
            names.called[self.program.of(value).name] = new
        parameters = [inner.text[value] for value in given]
        lines = inner.body(LocalBody(tuple(given), leaf.steps, leaf.results), 1)
        results = ", ".join(map(inner.read, leaf.results))
        document = f'"""Compute {listed_words(own.results)} of one leaf."""'
        head = called(f"def {own.function}", parameters, ":")
        return [*head, *indented([document, *lines, f"return {results}"])]

    def _names(self, alike: Sequence[LeafUpdate], paths: Mapping[int, str]) -> _Names:
        """Return the names for updates with one key. The function is named after the user's
        function that contains the updates, or else after its results."""
        columns = zip(*(leaf.operands for leaf in alike), strict=True)
        operands = _roles([[self._path(v) for v in column] for column in columns])
        columns = zip(*(leaf.results for leaf in alike), strict=True)
        shared = [
            self._role(column) or "".join(_shared([paths[v] for v in column])[:1])
            for column in columns
        ]
        is_clear = all(shared) and len(set(shared)) == len(shared)
        own = map(self.names.inside(()).own, alike[0].results)
        results = shared if is_clear else [*own]
        steps = (step for leaf in alike for step in leaf.steps)
        scopes = {self.program.of(step.results[0]).scope[-1:] for step in steps}
        word = "".join(scopes.pop()) if len(scopes) == 1 else ""
        is_of_user = word not in ("", self.program.program.name)
        function = word if is_of_user else "_".join(("leaf", *results))
        return _Names(self.names.fresh(function), tuple(operands), tuple(results))

    def _role(self, column: Sequence[int]) -> str:
        """Return the role that results of different updates share, or ""."""
        roles = {place.role if (place := self.ends.of([value])) else "" for value in column}
        return roles.pop() if len(roles) == 1 else ""

    def _path(self, value: int) -> str:
        name = self.program.of(value).name
        if self.program.values[value].value in self.program.program.body.arguments:
            return name
        return "gradient" if self.program.of(value).backward else ""

    def _said(self, value: int, text: str) -> str:
        return text if text.isidentifier() else self.names.inside(()).own(value)


def _result_paths(program: LocalProgram) -> dict[int, str]:
    """Return the paths of the program's results, by local value. Results of functions have the
    paths from their first calls. A value has a result's path if only layout changes are between the
    two."""
    said = dict(zip(program.body.results, program.program.result_names, strict=True))
    for step in program.body.steps:
        if isinstance(step, CallFunction):
            for own, value in zip(
                program.functions[step.function].results, step.results, strict=True
            ):
                if value in said:
                    said.setdefault(own, said[value])
    for body in (program.body, *program.functions):
        for step in reversed(body.steps):
            if isinstance(step, MoveValue) and step.result in said:
                said[step.operand] = said[step.result]
    return said


def _roles(columns: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each column of paths: the words that only its paths share, or else the last
    word that they share, or "".

    >>> _roles([["params_w", "params_b"], ["state_mu_params_w", "state_mu_params_b"]])
    ['params', 'state_mu']
    """
    shared = [*map(_shared, columns)]
    counts = Counter(itertools.chain.from_iterable(map(set, shared)))
    own = [[word for word in words if counts[word] == 1] for words in shared]
    return ["_".join(each) or "".join(words[-1:]) for each, words in zip(own, shared, strict=True)]


def _shared(paths: Sequence[str]) -> list[str]:
    first, *others = (re.findall(r"[A-Za-z]+", path.removeprefix("result")) for path in paths)
    return [word for word in first if all(word in other for other in others)]
