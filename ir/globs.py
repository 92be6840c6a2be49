"""Globs over names, and the text that their holes match.

`*` matches as few characters as possible, `{a,b}` one of several words, `{0..39}` a number, and
`/…/` is a regular expression. Each of these, and each group of a regular expression, is a *hole*.
The text matched by the holes can fill the holes of another text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardwright.ir.errors import InputError

_HOLE = re.compile(r"\*|\{[^{}]*\}")
_NUMBERS = re.compile(r"(\d+)\.\.(\d+)")
MOST_NAMES = 1_000_000
"""Most names that one glob may stand for."""


@dataclass(frozen=True)
class Glob:
    """A glob, or a regular expression between slashes.

    >>> Glob("layers.*.{q,k}").match("layers.7.k")
    ('7', 'k')
    """

    text: str

    def __post_init__(self) -> None:
        _ = self._pattern

    @property
    def is_regex(self) -> bool:
        """Whether this is a regular expression."""
        return len(self.text) > 1 and self.text[0] == self.text[-1] == "/"

    @property
    def is_exact(self) -> bool:
        """Whether it matches only its own text."""
        return not self.is_regex and not self.holes

    @property
    def holes(self) -> tuple[str, ...]:
        """The texts of the holes of a glob."""
        return tuple(_HOLE.findall(self.text))

    def match(self, name: str) -> tuple[str, ...] | None:
        """Return the text matched by each hole, or None if the name does not match."""
        found = self._pattern.fullmatch(name)
        return None if found is None else found.groups(default="")

    def named(self, text: str) -> Glob:
        """Return another text as a glob: a hole of this glob replaces each star with its number."""
        if self.is_regex or _HOLE.findall(text) == [*self.holes]:
            return Glob(text)
        if text.count("*") != len(self.holes) or "{" in text:
            raise InputError(
                "a name in a layout must have one star for each hole of its rule",
                got=f"{text} in a rule for {self.text}",
                expected=f"{len(self.holes)} stars",
            )
        return Glob(filled(text, self.holes))

    def names(self) -> Iterator[str]:
        """Yield the names matched by a glob of words and numbers, in order.

        Raises InputError for a star, which matches infinitely many names, and for too many names.
        """
        if self.is_regex or "*" in self.holes:
            raise InputError(
                "the pattern must list names to be a table",
                got=self.text,
                expected="a name, with {0..79} or {q,k}",
            )
        words = [_words(hole) for hole in self.holes]
        total = 1
        for each in words:
            total *= len(each)
        if total > MOST_NAMES:
            raise InputError(
                "one line of a table may stand for a limited number of names",
                got=f"{total:,} of {self.text}",
                expected=f"at most {MOST_NAMES:,}",
            )
        literals = _HOLE.split(self.text)
        for chosen in itertools.product(*words):
            yield "".join(itertools.chain(*zip(literals, (*chosen, ""), strict=True)))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        try:
            return re.compile(self.text[1:-1] if self.is_regex else self._regex())
        except re.error as error:
            raise InputError(
                f"the regular expression is invalid: {error.msg}", got=self.text, expected="/re/"
            ) from None

    def _regex(self) -> str:
        literals, holes = _HOLE.split(self.text), self.holes
        words = (".*?" if hole == "*" else "|".join(map(re.escape, _words(hole))) for hole in holes)
        return "".join(
            re.escape(literal) + (f"({word})" if word is not None else "")
            for literal, word in itertools.zip_longest(literals, words)
        )


def filled(text: str, values: Sequence[str]) -> str:
    """Return a text with values filled into its holes, in order.

    >>> filled("layers.*.qkv", ("7",))
    'layers.7.qkv'
    """
    literals = _HOLE.split(text)
    return "".join(itertools.chain(*itertools.zip_longest(literals, values, fillvalue="")))


def _words(hole: str) -> list[str]:
    """Return the words listed in braces."""
    inside = hole[1:-1]
    if numbers := _NUMBERS.fullmatch(inside):
        low, high = map(int, numbers.groups())
        if low <= high:
            return [str(number) for number in range(low, min(high, low + MOST_NAMES) + 1)]
    elif inside and ".." not in inside:
        return [word.strip() for word in inside.split(",")]
    raise InputError(
        "braces must hold words, or numbers in ascending order",
        got=hole,
        expected="{q,k,v} or {0..79}",
    )
