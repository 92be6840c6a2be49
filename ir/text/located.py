"""A text that is being parsed: its parse tree, and errors with a caret under the wrong token."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from shardwright.ir.errors import InputError, Span, Where, check_type, suggested

Spans = dict[Where, Span]

STARTS = {
    "grammar.lark": ["mesh_text", "meshes_text", "sharding_text"],
    "framework.lark": ["spec_text", "placements_text"],
    "layout.lark": ["layout_text", "dim_text"],
}
MOST_DIGITS = 18  # the maximum number of digits of a number, which then fits into 64 bits
LEXEME = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'|[#@]?\w+(\.\w+)*|.', re.DOTALL)

# The names of terminals of the grammar in the `expected` line. A terminal that is not listed is
# named by its text.
QUOTES = {"'", '"'}
NAMED = "an axis name in quotes"
WORDS = {
    "STRING": NAMED,
    "NAME": "an axis such as x=2",
    "INT": "an integer",
    "ID_LIST": "a list of device ids in brackets",
    "MESH_NAME": "a mesh name such as @mesh",
    "MESH": "'mesh<'",
    "MESH_OP": "'sdy.mesh'",
    "SHARDING": "'sharding<'",
    "PER_VALUE": "'sharding_per_value<'",
    "PRIORITY": "a priority such as p1",
    "TENSOR": "a tensor type such as tensor<4x8xf32>",
    "KIND": "'replicated', 'unreduced'",
    "OPERATOR": "'sum', 'max', 'min'",
    "$END": "the end",
    "SPEC": "'P'",
    "UNCONSTRAINED": "'P.UNCONSTRAINED'",
    "WORD": "a name",
    "MODIFIER": "'sized', 'balanced', 'nested', 'listed', 'cover', 'into', 'reversed', 'table'",
    "STACK": "'stack('",
    "CUT": "'cut('",
}
IGNORED = {"COMMENT", "WHITESPACE"}
FORMS = "[{\"x\"}, {}], P('x', None), (Shard(0), Replicate()) or {devices=[2,1]<=[2]}"
"""A sharding in each notation, for the error about a text that is in no known notation."""
FUNCTIONS = ("stack", "cut")
CLASSES = ("Shard", "Replicate", "Partial", "PartitionSpec")


@functools.cache
def _parser(start: str) -> Lark:
    grammar, starts = next(each for each in STARTS.items() if start in each[1])
    if start != starts[0]:
        return _parser(starts[0])
    return Lark.open(
        grammar, rel_to=__file__, start=starts, parser="lalr", propagate_positions=True
    )


@functools.lru_cache(maxsize=256)
def _parsed(text: str, start: str) -> Tree[Token]:
    """Return the parse tree of a text. It is cached, because a config repeats a few texts many
    times, so callers must not change it."""
    return _parser(start).parse(text, start=start)


@dataclass(frozen=True)
class Located:
    """A text, and the name of the argument (a parameter, a flag or a key) whose value it is."""

    text: str
    argument: str | None

    def __post_init__(self) -> None:
        check_type(self.text, str, "a string", self.argument)

    def tree(self, start: str, what: str) -> Tree[Token]:
        """Return the parse tree. Raise InputError if the text does not follow the grammar.

        `start`: the start symbol of the grammar. `what`: a noun that names the text in errors.
        """
        try:
            return _parsed(self.text, start)
        except UnexpectedInput as error:
            span = self._offending(error)
            got, expected = self.text[slice(*span)], _expected(error, start)
            rule = f"the text is not {what}"
            words = re.findall(r"'(\w+)\(?'", expected or "")
            if start == "sharding_text" and not self.text[: span[0]].strip():
                words, expected = [*CLASSES], FORMS
            called = re.search(r"(\w+)\s*$", self.text[: span[0]]) if got == "(" else None
            word, choices = (called[1], FUNCTIONS) if called else (got, words)
            if word.isidentifier():
                rule += suggested(word, choices)
            if got.isidentifier() and expected and NAMED in expected and not QUOTES & {*self.text}:
                rule += "; axis names need quotes (a shell removes them: quote the whole text)"
            raise self.error(
                rule, span, got=got or "the end of the text", expected=expected
            ) from None

    def error(
        self, rule: str, span: Span, *, got: object, expected: str | None = None
    ) -> InputError:
        return InputError(
            rule, argument=self.argument, got=got, expected=expected, text=self.text, span=span
        )

    @contextlib.contextmanager
    def locating(self, spans: Spans) -> Iterator[None]:
        """Add a span to an InputError raised in the body: the span of its path, or of the nearest
        enclosing path in `spans`."""
        try:
            yield
        except InputError as error:
            where = error.where
            while where and where not in spans:
                where = where[:-1]
            if where not in spans or (error.span is not None and error.text == self.text):
                raise
            raise error.within(self.text, spans[where], self.argument) from None

    def integer(self, digits: str, span: Span) -> int:
        if len(digits) <= MOST_DIGITS:
            return int(digits)
        raise self.error(
            "the number is too long",
            span,
            got=f"{len(digits)} digits",
            expected=f"at most {MOST_DIGITS} digits",
        )

    def integers(self, token: Token, spans: Spans) -> list[int]:
        """Return the device ids of a list in brackets, and record the spans of the list and of each
        id in `spans`."""
        place = span_of(token)
        spans["device_ids",] = place
        inside = str(token)[1:-1]
        if not inside.strip():
            return []
        numbers, start = [], place[0] + 1
        for i, part in enumerate(inside.split(",")):
            span = (start + len(part) - len(part.lstrip()), start + len(part.rstrip()))
            spans["device_ids", i] = span
            numbers.append(self._id(part.strip(), span))
            start += len(part) + 1
        return numbers

    def _id(self, digits: str, span: Span) -> int:
        if re.fullmatch("-?[0-9]+", digits):
            return self.integer(digits, span)
        place = span if digits else (span[1], span[1] + 1)
        raise self.error(
            "a device id must be an integer",
            place,
            got=digits or "nothing in place of an id",
            expected="0, 1, 2, …",
        )

    def priority(self, token: Token) -> int:
        if re.fullmatch("p(-?[1-9][0-9]*|0)", token):
            return self.integer(token[1:], span_of(token))
        raise self.error(
            "a priority must be p and a number without leading zeros",
            span_of(token),
            got=str(token),
            expected="p0, p1, p2, …",
        )

    def _offending(self, error: UnexpectedInput) -> Span:
        """Return the span of the token at which parsing failed; an empty span if it failed at the
        end of the text."""
        if isinstance(error, UnexpectedToken) and error.token.type != "$END":
            return span_of(error.token)
        if isinstance(error, UnexpectedCharacters):
            lexeme = LEXEME.match(self.text, error.pos_in_stream or 0)
            if lexeme is not None:
                return lexeme.span()
        end = len(self.text.rstrip())
        return end, end


def span_of(node: Tree[Token] | Token) -> Span:
    """Return the span of a token or a tree in the text."""
    if isinstance(node, Tree):
        return node.meta.start_pos, node.meta.end_pos
    return cast(int, node.start_pos), cast(int, node.end_pos)


def _expected(error: UnexpectedInput, start: str) -> str | None:
    """Return text that lists the tokens that the parser would have accepted."""
    names: Iterable[str] = ()
    if isinstance(error, UnexpectedToken):
        names = error.accepts or error.expected
    elif isinstance(error, UnexpectedCharacters):
        names = error.allowed or ()
    values = {terminal.name: terminal.pattern.value for terminal in _parser(start).terminals}
    texts = {name: '"\'"' if value == "'" else f"'{value}'" for name, value in values.items()}
    words = sorted({WORDS.get(name) or texts[name] for name in set(names) - IGNORED})
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
