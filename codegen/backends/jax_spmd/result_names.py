"""The names of values that a program returns in trees, after their places there: `new_params_wk`
for `params["wk"]`, if the user's function returns `params` and has a parameter of that name."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.partition.local.steps import CallFunction, LocalBody, LocalProgram

PART = re.compile(r"\.(\w+)|\[([^\[\]]*)\]")
"""Matches a part of a path: an attribute, or an index."""
NEW = re.compile(r"^new_|_new$")
"""Matches the words with which users mark a variable that replaces an argument."""
Words = tuple[str, ...]
"""The parts of a path as words, which are numbers for items of lists."""


@dataclass(frozen=True)
class ResultPlace:
    """The place of a result, or of the corresponding results of all calls of a function. `role`:
    the variable or the key of the tree that contains it; `words`: the rest of its path; `is_new`:
    whether it replaces the argument with the same path."""

    role: str
    words: Words
    is_new: bool


class ResultPlaces:
    """The places of a program's results in the variables that the user's function returns."""

    def __init__(self, program: LocalProgram) -> None:
        self.program, own = program, program.program
        self.arguments = frozenset(map(_words, own.argument_paths))
        self.tails = {words[1:] for words in self.arguments if words[1:]}
        self.names = own.held or ("",) * len(own.result_names)
        self.numbers: dict[int, int] = {}  # the number of the result that is each value
        for number, local in enumerate(program.body.results):
            self.numbers.setdefault(program.values[local].value, number)

    def of(self, locals_: Sequence[int]) -> ResultPlace | None:
        """Return the place that results have in common, one for each call of a function, or None if
        one of the local values is not a result, or if they have different roles."""
        numbers = [self.numbers.get(self.program.values[local].value) for local in locals_]
        found = [self._place(number) for number in numbers if number is not None]
        if len(found) < len(numbers) or len({(each.role, each.is_new) for each in found}) > 1:
            return None
        parts = zip(*(each.words for each in found), strict=False)
        words = tuple(part[0] for part in parts if len(set(part)) == 1)
        return ResultPlace(found[0].role, words, found[0].is_new)

    def _place(self, number: int) -> ResultPlace:
        name, path = self.names[number], self.program.program.result_names[number]
        variable, *words = _words(name) if name else ("", *_words(path)[1:])
        role = NEW.sub("", variable)
        is_new = (role, *words) in self.arguments
        for start in range(1, len(words)):
            if tuple(words[start:]) in self.tails and words[start - 1].isidentifier():
                return ResultPlace(words[start - 1], tuple(words[start:]), is_new)
        return ResultPlace(role, tuple(words), is_new)

    def call(
        self, names: LocalNames, body: LocalBody, columns: Mapping[int, Sequence[int]]
    ) -> None:
        """Name the values of a body that end as parts of the program's results. `columns`: for each
        local value, the program's local values that it is in each call.

        A value keeps the user's name if no other value with that name ends under another key."""
        given = {
            self.program.values[v].value for v in (*self.program.body.arguments, *body.arguments)
        }
        places = {
            local: place
            for local, each in columns.items()
            if self.program.values[local].value not in given and (place := self.of(each))
        }
        own = {local: names.own(local) for local in places}
        ends: defaultdict[str, set[str]] = defaultdict(set)
        for local, place in places.items():
            ends[own[local]].update(place.words[-1:])
        renamed = {
            local: place
            for local, place in places.items()
            if (place.words or place.role)
            and not self.program.of(local).gradient_of
            and (not self.program.of(local).is_named or len(ends[own[local]]) > 1)
        }
        for local, text in _short(renamed, own).items():
            if not text.startswith(("d_", "bwd_")):  # the names of gradients
                names.called[self.program.of(local).name] = text


def _short(places: Mapping[int, ResultPlace], own: Mapping[int, str]) -> dict[int, str]:
    """Return the names of places: the last word if only one has it, otherwise the role and as many
    last words as tell the places of that role apart."""
    lasts = Counter(place.words[-1:] for place in places.values())
    found = {}
    for local, place in places.items():
        others = [each.words for each in places.values() if each.role == place.role]
        counts = (
            (count, sum(each[-count:] == place.words[-count:] for each in others))
            for count in range(1, len(place.words) + 1)
        )
        count = next((count for count, alike in counts if alike == 1), len(place.words))
        is_alone = place.words and lasts[place.words[-1:]] == 1 and place.words[-1].isidentifier()
        role = "" if is_alone else place.role or own[local]
        words = [role, *(place.words[-count:] if count else ())]
        found[local] = "_".join(filter(None, ("new" if place.is_new else "", *words)))
    return found


def _words(path: str) -> Words:
    """Return a variable and the parts of a path from it as words.

    >>> _words("state[0].mu['w']")
    ('state', '0', 'mu', 'w')
    """
    start = re.match(r"\w*", path)
    parts = (one or re.sub(r"\W+", "_", other).strip("_") for one, other in PART.findall(path))
    return (start[0] if start else "", *filter(None, parts))


def columns_of(program: LocalProgram) -> list[dict[int, list[int]]]:
    """Return, for each function, the local value that each result of it is in every call."""
    found: list[dict[int, list[int]]] = [{} for _ in program.functions]
    for step in program.body.steps:
        if isinstance(step, CallFunction):
            body = program.functions[step.function]
            for own, result in zip(body.results, step.results, strict=True):
                found[step.function].setdefault(own, []).append(result)
    return found
