"""The two kinds of error: mistakes in the input (`InputError`), and bugs in Shardwright
(`InternalError`).

The message of an `InputError` tells the user what to change. Its form is fixed:

    --source: an axis must exist in the mesh
      [{"x"}, {"w"}]
               ^^^
    got: "w"
    expected: one of "x", "y"
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import UnionType
from typing import ParamSpec, TypeVar, get_args

from shardwright.ir.foreign import door

Span = tuple[int, int]
Where = tuple[Hashable, ...]
P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 100  # the maximum number of columns shown of an offending line
LONGEST_VALUE = 200  # the maximum number of characters shown of a given value
LONGEST_EXPECTED = 1000  # the maximum number of characters shown of the expected value
NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


class InternalError(RuntimeError):
    """A broken invariant: a bug in Shardwright, not a mistake in the input."""


class InputError(ValueError):
    """A mistake in the input: the broken rule, the given value and the expected value.

    `text` and `span` locate the mistake in the user's text. `where` is the path to the offending
    part of an object, such as `("dims", 1, "axes", 0)`; a parser finds its span by this path.
    """

    def __init__(
        self,
        rule: str,
        *,
        argument: str | None = None,
        got: object = None,
        expected: str | None = None,
        text: str | None = None,
        span: Span | None = None,
        where: Where = (),
    ) -> None:
        self.rule = rule
        self.argument = argument
        self.got = got
        self.expected = expected
        self.text = text
        self.span = span
        self.where = where
        super().__init__(rule)

    def __str__(self) -> str:
        lines = [f"{self.argument}: {self.rule}" if self.argument else self.rule]
        if self.text is not None:
            lines += underlined(self.text, self.span)
        if self.got is not None:
            lines.append(f"got: {_short(self.got)}")
        if self.expected is not None:
            lines.append(f"expected: {_short(self.expected, LONGEST_EXPECTED)}")
        return "\n".join(lines)

    def within(
        self, text: str | None, span: Span | None, argument: str | None = None
    ) -> InputError:
        """Return the same error with its location: a text, and a span in it."""
        return self._with(text=text, span=span, argument=argument or self.argument)

    def named(self, argument: str | None) -> InputError:
        """Return the same error for a named argument (a flag, a key, a parameter)."""
        return self._with(text=self.text, span=self.span, argument=argument or self.argument)

    def _with(self, text: str | None, span: Span | None, argument: str | None) -> InputError:
        return InputError(
            self.rule,
            argument=argument,
            got=self.got,
            expected=self.expected,
            text=text,
            span=span,
            where=self.where,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (dict(self.__dict__),))


def _rebuilt(state: dict[str, object]) -> InputError:
    error = InputError(str(state["rule"]))
    error.__dict__.update(state)
    return error


@contextlib.contextmanager
def placed(*where: Hashable) -> Iterator[None]:
    """Prepend `where` to the path of an InputError raised in the body."""
    try:
        yield
    except InputError as error:
        error.where = (*where, *error.where)
        raise


def check_type(
    value: object, kind: type | UnionType, expected: str, argument: str | None = None
) -> None:
    """Raise InputError unless the value is of type `kind`. `expected`: an example of a valid value,
    for the message."""
    if not isinstance(value, kind):
        raise wrong_type(value, kind, expected, argument)


def wrong_type(
    value: object, kind: type | UnionType, expected: str, argument: str | None = None
) -> InputError:
    """Return the error for a value that is not of type `kind`. The arguments are those of
    `check_type`."""
    kinds = (kind,) if isinstance(kind, type) else get_args(kind)
    names = dict.fromkeys(each.__name__ for each in kinds)
    return InputError(
        f"the value must be of type {' or '.join(names)}",
        argument=argument,
        got=in_a_line(value),
        expected=door(value, names) or expected,
    )


def in_a_line(value: object) -> str:
    """Return the `repr` of a value on one line, for the `got` line of an error."""
    return " ".join(repr(value).split())


def underlined(text: str, span: Span | None) -> list[str]:
    """Return two lines: the line of `text` that contains the start of `span`, and carets under the
    span. A long line is clipped. Without a span, return the first line of `text` alone."""
    if span is None:
        return [f"  {_clipped(line, 0)[0]}" for line in text.splitlines()[:1]]
    start = min(span[0], len(text))
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : len(text) if last < 0 else last]
    begin, end = start - first, min(span[1] - first, len(line))
    shown, offset = _clipped(line, begin)
    carets = "^" * max(1, min(end, offset + WIDTH) - begin)
    lead = "".join("\t" if c == "\t" else " " for c in shown[: begin - offset])
    return [f"  {shown}", f"  {lead}{carets}"]


def _clipped(line: str, begin: int) -> tuple[str, int]:
    """Return at most WIDTH columns of a line around column `begin`, and the number of columns cut
    off on the left."""
    offset = max(0, min(begin - WIDTH // 3, len(line) - WIDTH))
    return line[offset : offset + WIDTH], offset


def _short(value: object, most: int = LONGEST_VALUE) -> str:
    shown = str(value) or "''"
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def install(extra: str) -> str:
    """Return instructions for installing an extra from a checkout. (A package index may have a
    different package of this name.)"""
    return f"pip install -e '.[{extra}]' in the checkout of shardwright"


MOST_LISTED = 40
"""The maximum number of choices that an error lists."""


def one_of(choices: Iterable[str]) -> str:
    """Return the `expected` line for a choice: `one of a, b, c`, with at most MOST_LISTED
    choices. A single choice stands alone. Without choices, the line states that there are none."""
    listed = tuple(choices)
    if not listed:
        return "none: there is nothing to choose from"
    if len(listed) == 1:
        return listed[0]
    more = f", and {len(listed) - MOST_LISTED:,} more" * (len(listed) > MOST_LISTED)
    return f"one of {', '.join(listed[:MOST_LISTED])}{more}"


def unknown(
    rule: str,
    got: str,
    choices: Iterable[str],
    argument: str | None = None,
    expected: str | None = None,
) -> InputError:
    """Return the error for an unknown name, with the closest choice as a suggestion.

    `expected`: the `expected` line; by default it lists the choices.
    """
    listed = tuple(choices)
    expected = one_of(listed) if expected is None else expected
    return InputError(rule + suggested(got, listed), argument=argument, got=got, expected=expected)


def suggested(got: str, choices: Iterable[str]) -> str:
    """Return a message suffix that suggests the closest choice, ignoring case; "" if no choice
    is close."""
    by_lower = {choice.lower(): choice for choice in reversed(tuple(choices))}
    near = difflib.get_close_matches(got.lower(), by_lower, 1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def known_arguments(fn: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises InputError for a keyword argument that it does not have.

    >>> known_arguments(lambda backends=(): backends)(backend="jax_xla")
    Traceback (most recent call last):
    shardwright.ir.errors.InputError: unknown argument; did you mean backends?
    got: backend
    expected: backends
    """
    parameters = inspect.signature(fn).parameters.items()
    known = [name for name, each in parameters if each.kind in NAMED and name != "self"]

    @functools.wraps(fn)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise unknown("unknown argument", name, known, _called(fn))
        return fn(*args, **kwargs)

    return checked


def _called(fn: Callable[..., object]) -> str | None:
    """Return how users call a function, or a class by its constructor; None for a lambda."""
    own = fn.__qualname__.removesuffix(".__init__")
    return None if own == "<lambda>" else f"sw.{own}"
