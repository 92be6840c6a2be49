"""The functions of a program as text, and the statements that call them."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.codegen.backends.jax_spmd.calls import (
    CallNames,
    Parameter,
    at_each,
    call_names,
    calls_of,
    common_name,
    parameters,
    regular,
)
from shardwright.codegen.backends.jax_spmd.leaves import LeafFunctions, LeafWriter
from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.backends.jax_spmd.purposes import purpose
from shardwright.codegen.backends.jax_spmd.result_names import ResultPlaces, columns_of
from shardwright.codegen.backends.jax_spmd.subtrees import (
    distinct,
    ends_of,
    every_name,
    named_subtrees,
    result_words,
)
from shardwright.codegen.backends.jax_spmd.trees import Path, flat, tree_lines, tree_of
from shardwright.codegen.backends.jax_spmd.user_functions import UserFunctions
from shardwright.codegen.partition.local.steps import CallFunction, LocalProgram
from shardwright.codegen.text.python_text import INDENT, WIDTH, called, indented
from shardwright.codegen.trace.scopes import BACKWARD

Texts = tuple[str, ...] | tuple[tuple[str, str], ...]
"""A list of texts, or the items of a dict of texts."""
ROUNDS = 4
"""The most times that a function is written. It is written again if its results get new keys: keys
are names of values, which depend on the keys of the results that a call takes from the previous
call."""


class Functions:
    """The functions of a program. Rendering the first call of a function appends its definition to
    `lines`.

    `paths`: the paths of the program's arguments and of the results of calls, by local value;
    `more`: for each function number, the parameters of the module's main function that its calls
    pass on.
    """

    def __init__(
        self,
        program: LocalProgram,
        names: LocalNames,
        arguments: Mapping[int, Path],
        results: Mapping[int, Path],
        more: Mapping[int, tuple[str, ...]] | None = None,
    ) -> None:
        self.program, self.names = program, names
        self.calls = calls_of(program)
        self.ends = ResultPlaces(program)
        self.columns = columns_of(program)
        self.ends.call(names, program.body, {v: [v] for v in program.body.results})
        self.given = [*call_names(program, names, self.ends, results, arguments)]
        self.paths, self.places = dict(arguments), results
        for number in range(len(self.given)):
            self._place(number)
        self._lists = {own.made: own.function for own in self.given}
        self.lines: list[str] = []
        self.leaves = LeafFunctions(program, names, self.ends, self.lines)
        self.users = UserFunctions(program, names, self.lines)
        self._written: dict[tuple[str, ...], str] = {}  # function names, by parameters and lines
        self._index = ""  # the variable of loops over calls, which are never nested
        self.more = more or {}

    def _place(self, number: int) -> None:
        own = self.given[number]
        for at, call in enumerate(self.calls[number]):
            self.paths.update((v, own.path(at, slot)) for slot, v in enumerate(call.results))

    def call(self, writer: LeafWriter, step: CallFunction, indent: int) -> list[str]:
        """Return the lines of all calls of a function if `step` is the first of them, otherwise
        none."""
        number = step.function
        if step is not self.calls[number][0]:
            return []
        taken = self._write(writer, number)
        own = self.given[number]
        rows = [
            [self._given(writer, each, call, at) for each in taken]
            for at, call in enumerate(self.calls[number])
        ]
        paths = [
            [each if isinstance(each, tuple) else (flat(each),) for each in row] for row in rows
        ]
        lines: list[str] = [*self._reversed(number, paths)]
        at = 0
        while at < len(rows):
            count = regular(paths[at:])
            if count == 1:
                given = [each if isinstance(each, dict) else "".join(each) for each in rows[at]]
                given += self.more.get(number, ())
                lines += _appended(own, given, at, indent)
            else:
                lines += self._loop(number, paths[at : at + count], at, indent)
            at += count
        return lines

    def _reversed(self, number: int, rows: Sequence[Sequence[Path]]) -> Iterator[str]:
        """Yield a comment if the calls of a backward pass take the results of a list from last to
        first."""
        own = self.given[number]
        for paths in zip(*rows, strict=True) if own.layer.startswith(BACKWARD) else ():
            is_list = paths[0][0] in self._lists and all(len(path) > 1 for path in paths)
            last = [f"[{at}]" for at in reversed(range(len(rows)))]
            if is_list and [path[1] for path in paths] == last:
                yield f"# Last layer first: {own.made}[0] is of {''.join(paths[0][:2])}."
                return

    def _loop(
        self, number: int, rows: Sequence[Sequence[Path]], first: int, indent: int
    ) -> list[str]:
        own = self.given[number]
        variable = self._index = self._index or self.names.fresh("i")
        given = [at_each(paths, first, variable) for paths in zip(*rows, strict=True)]
        given += self.more.get(number, ())
        made = f"{own.function}({', '.join(given)})"
        start = f"{first}, " if first else ""
        head = f"for {variable} in range({start}{first + len(rows)})"
        if not first:  # no call uses another call's result
            line = f"{own.made} = [{made} {head}]"
            fits = len(line) + indent * len(INDENT) <= WIDTH
            lines = called(own.function, given, "", indent + 1)
            return [line] if fits else [f"{own.made} = [", *indented([*lines, head]), "]"]
        return [f"{head}:", *indented(_appended(own, given, first, indent + 1))]

    def _given(
        self, writer: LeafWriter, own: Parameter, step: CallFunction, at: int
    ) -> Path | dict[Any, Any]:
        values = [step.operands[slot] for slot in own.slots]
        if own.prefixes:
            return own.prefixes[at] or tree_of(own.suffixes, list(map(writer.read, values)))
        is_elsewhere = values[0] not in writer.text and values[0] not in writer.filled
        return self.paths[values[0]] if is_elsewhere else (writer.read(values[0]),)

    def _write(self, writer: LeafWriter, number: int) -> list[Parameter]:
        calls, body = self.calls[number], self.program.functions[number]
        slots = [
            slot for slot in range(len(body.arguments)) if not self._same(writer, number, slot)
        ]
        outer, before = writer.names, dict(writer.text)
        for _ in range(ROUNDS):
            writer.text = dict(before)
            own, lines = self._lines(writer, number, slots)
            results = list(map(writer.read, body.results))
            keys = distinct(results, list(map(writer.names.own, body.results)))
            ends = ends_of(self.ends, keys, calls, self.places)
            if ends == self.given[number].ends:
                break
            self.given[number] = replace(self.given[number], ends=ends)
            self._place(number)
        writer.names, writer.text = outer, before
        given = results[0] if ends == ((),) else tree_of(ends, results)
        listed = [*(each.name for each in own), *self.more.get(number, ())]
        header = called(f"def {self.given[number].function}", listed, ":")
        filled = named_subtrees(self.ends, keys, calls, self.places)
        is_filled = len(filled) == len({end[:1] for end in ends}) or (
            len(result_words(self.ends, calls)) == len(ends)
        )
        said = purpose(self.program, self.given[number], calls, is_filled)
        document = f'"""{said}"""'
        described = textwrap.wrap(document, WIDTH - len(INDENT), break_on_hyphens=False)
        lines = [*described, *lines, *tree_lines(given, "return ", "", 1)]
        same = self._written.setdefault((*listed, *lines), self.given[number].function)
        if same == self.given[number].function:
            self.lines += ["", "", *header, *indented(lines)]
        self.given[number] = replace(self.given[number], function=same)
        self._lists[self.given[number].made] = same
        return own

    def _lines(
        self, writer: LeafWriter, number: int, slots: Sequence[int]
    ) -> tuple[list[Parameter], list[str]]:
        calls, body = self.calls[number], self.program.functions[number]
        more = (*self.leaves.functions(), *self.users.functions())
        functions = (*(each.function for each in self.given), *more)
        given = self.given[number]
        writer.names = names = self.names.inside(functions, given.instance, given.function)
        names.results = every_name(self.program, calls)
        self.ends.call(names, body, self.columns[number])
        named = {
            slot: self._named(writer, [call.operands[slot] for call in calls])
            or names.own(body.arguments[slot])
            for slot in slots
        }
        for slot, name in named.items():
            if self.program.of(body.arguments[slot]).gradient_of and name.startswith("d_"):
                names.called.setdefault(self.program.of(body.arguments[slot]).name, name)
        item = given.layer.rpartition(" ")[2].lower()
        own = parameters(calls, slots, self.paths, named, names, self._lists, item)
        writer.text = {}  # no name of the caller is in scope
        for each in own:
            for slot, end in zip(each.slots, each.suffixes, strict=True):
                text = writer.text[body.arguments[slot]] = "".join((each.name, *end))
                names.shown.show(body.arguments[slot], text)
                if words := re.findall(r"[A-Za-z_]\w*", "".join(end)):
                    names.called[self.program.of(body.arguments[slot]).name] = words[-1]
        return own, writer.body(body, 1)

    def _named(self, writer: LeafWriter, operands: Sequence[int]) -> str:
        """Return a name for the parameter for which calls pass `operands`, or "" for a gradient,
        which is named after its value. Gradients of different leaves have only their first words in
        common: `d_params_norm` for those by `params["norm"]["bias"]` and `["scale"]`."""
        if self.program.of(operands[0]).gradient_of:
            names = [(*self.program.of(v).gradient_of, "")[0].split("_") for v in operands]
            if len({name[-1] for name in names if not name[-1].isdigit()}) < 2:
                return ""
            parts = zip(*names, strict=False)
            first = [
                one for one, *_ in itertools.takewhile(lambda part: len(set(part)) == 1, parts)
            ]
            return "_".join(("d", *first)) if first else "gradient"
        return common_name([self._at(writer, operand) for operand in operands])

    def _at(self, writer: LeafWriter, local: int) -> str:
        """Return the expression with which calls refer to a value, or "" for a number and for a
        value that is not written yet."""
        return writer.text.get(local, "") or "".join(self.paths.get(local, ()))

    def _same(self, writer: LeafWriter, number: int, slot: int) -> bool:
        """Return whether an operand is the same number in all calls. If so, record the number,
        which the function then contains."""
        found = [writer.filled.get(call.operands[slot]) for call in self.calls[number]]
        if found[0] is None or any(each != found[0] for each in found):
            return False
        writer.filled[self.program.functions[number].arguments[slot]] = found[0]
        return True

    def whole(self, tree: Any) -> Any:
        """Replace the dicts and lists that calls returned, in a tree of texts, by their
        expressions."""
        return _replaced(tree, dict(self._trees()))

    def _trees(self) -> Iterator[tuple[Texts, str]]:
        for own, calls in zip(self.given, self.calls, strict=True):
            inner: dict[Path, dict[str, None]] = defaultdict(dict)  # the keys in each dict
            for end in own.ends:
                for length in range(len(end)):
                    inner[end[:length]][end[length]] = None
            for start in inner:
                texts = [f"{own.made}[{at}]{''.join(start)}" for at in range(len(calls))]
                each = f"[each{''.join(start)} for each in {own.made}]"
                yield tuple(texts), each if start else own.made
                for text in texts:
                    items = {f"{text}{key}": ast.literal_eval(key)[0] for key in inner[start]}
                    yield tuple(sorted((key, made) for made, key in items.items())), text


def _appended(own: CallNames, given: Sequence[Any], at: int, indent: int) -> list[str]:
    start, end = (f"{own.made}.append(", ")") if at else (f"{own.made} = [", "]")
    line = f"{start}{own.function}({', '.join(map(flat, given))}){end}"
    if len(line) + indent * len(INDENT) <= WIDTH:
        return [line]
    lines = [line for each in given for line in tree_lines(each, "", ",", indent + 2)]
    inside = [f"{own.function}(", *indented(lines), ")"]
    return [start, *indented(inside), end]


def _replaced(tree: Any, known: Mapping[Texts, str]) -> Any:
    if isinstance(tree, list | tuple):
        items = type(tree)(_replaced(item, known) for item in tree)
        is_known = isinstance(tree, list) and all(isinstance(item, str) for item in items)
        return known.get(tuple(items), items) if is_known else items
    if not isinstance(tree, dict):
        return tree
    inner = {key: _replaced(item, known) for key, item in tree.items()}
    if not all(isinstance(item, str) for pair in inner.items() for item in pair):
        return inner
    return known.get(tuple(sorted(inner.items())), inner)
