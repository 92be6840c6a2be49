"""Globs over names, and the text that their holes match.

`*` matches as few characters as possible, `{a,b}` one of the words, `{0..39}` one of the numbers.
Each of these is a *hole*. A pattern between slashes, `/…/`, is a regular expression, and each of
its groups is a hole. The texts that the holes match can be filled into the holes of another glob.
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
"""The maximum number of names that one glob may list."""


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
        """Whether the text is a regular expression."""
        return len(self.text) > 1 and self.text[0] == self.text[-1] == "/"

    @property
    def is_exact(self) -> bool:
        """Whether the glob matches only its own text."""
        return not self.is_regex and not self.holes

    @property
    def holes(self) -> tuple[str, ...]:
        """The holes of a glob as written, such as `*` and `{q,k}`."""
        return tuple(_HOLE.findall(self.text))

    def match(self, name: str) -> tuple[str, ...] | None:
        """Return the text that each hole matches, or None if the name does not match."""
        found = self._pattern.fullmatch(name)
        return None if found is None else found.groups(default="")

    def named(self, text: str) -> Glob:
        """Return `text` as a glob, with the n-th star replaced by the n-th hole of this glob. If
        this glob is a regular expression, or if `text` has the same holes, return the glob of
        `text` as it is. Raise InputError unless any other text has one star per hole."""
        if self.is_regex or _HOLE.findall(text) == [*self.holes]:
            return Glob(text)
        if text.count("*") != len(self.holes):  # the grammar of layouts takes no braces
            raise InputError(
                "a tensor in a layout must have one star (*) for each wildcard of its rule",
                got=f"{text} in a rule for {self.text}",
                expected=f"a name with {len(self.holes)} star{'s' * (len(self.holes) != 1)}",
            )
        return Glob(filled(text, self.holes))

    def names(self) -> Iterator[str]:
        """Yield the names that a glob of words and numbers matches, in order.

        Raises InputError for a star or a regular expression, which match infinitely many names, and
        for more than MOST_NAMES names.
        """
        if self.is_regex or "*" in self.holes:
            raise InputError(
                "a key of the table of tensors must list its names, not match a pattern",
                got=self.text,
                expected="a name without *, for example layers.{0..79}.{q,k}",
            )
        words = [_words(hole) for hole in self.holes]
        total = 1
        for each in words:
            total *= len(each)
        if total > MOST_NAMES:
            raise InputError(
                "a key of the table of tensors must not list too many names",
                got=f"{total:,} names in {self.text}",
                expected=f"at most {MOST_NAMES:,} names",
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
                f"the regular expression is invalid: {error.msg}",
                got=self.text,
                expected="an expression for Python's re, such as /layers[.]([0-9]+)[.]w/",
            ) from None

    def _regex(self) -> str:
        literals, holes = _HOLE.split(self.text), self.holes
        words = (".*?" if hole == "*" else "|".join(map(re.escape, _words(hole))) for hole in holes)
        return "".join(
            re.escape(literal) + (f"({word})" if word is not None else "")
            for literal, word in itertools.zip_longest(literals, words)
        )


def filled(text: str, values: Sequence[str]) -> str:
    """Fill values into the holes of a text, in order.

    >>> filled("layers.*.qkv", ("7",))
    'layers.7.qkv'
    """
    literals = _HOLE.split(text)
    return "".join(itertools.chain(*itertools.zip_longest(literals, values, fillvalue="")))


def _words(hole: str) -> list[str]:
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
