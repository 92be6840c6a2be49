"""Learn a layout at a few small sizes as a function of the size, and check it at a different
size."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

from shardwright.codegen.learn.fit import holds
from shardwright.codegen.learn.learn import Learned, learn, read_ranks
from shardwright.codegen.learn.logical import element_type, read_logical
from shardwright.codegen.learn.pieces import first_difference
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.stored import Stored
from shardwright.ir.text.layout_text import parse_layout

Size: TypeAlias = Mapping[str, int]
"""The parameters of a model and of its parallelism, by name: heads, kv heads, ranks."""

NUMBER = re.compile(r"(?<![\w.])\d+")
AXIS = re.compile(r'("[^"]+")(:\(\d+\)\d+)?')
MOST_SAID = 2**20
"""The total number of elements of the tensors up to which an error states the layout that the
loader stores."""
_MULTIPLES = (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class SizeFormula:
    """A number in a layout as a function of the size. `text`: a Python expression of the
    parameters."""

    text: str

    def value(self, size: Size) -> Fraction:
        """Return the exact number at a size."""
        known = {name: Fraction(value) for name, value in size.items()}
        return Fraction(eval(self.text, {"min": min, "ceil": math.ceil, "__builtins__": {}}, known))


@dataclass(frozen=True)
class LayoutForm:
    """The text of a buffer's layout, with numbers replaced by formulas."""

    words: tuple[str, ...]  # one more than the number of formulas
    formulas: tuple[SizeFormula, ...]

    def text(self, size: Size) -> str:
        """Return the layout at a size."""
        values = (formula.value(size) for formula in self.formulas)
        return "".join(_woven(self.words, (str(int(value)) for value in values)))

    def __str__(self) -> str:
        said = (each.text if each.text.isdigit() else f"{{{each.text}}}" for each in self.formulas)
        return "".join(_woven(self.words, said))


@dataclass(frozen=True, repr=False)
class LearnedSizes(Drawn):
    """Layouts as functions of the size.

    `learned` and `checked`: the sizes at which the loader ran.
    """

    forms: dict[str, LayoutForm]  # by buffer
    learned: tuple[dict[str, int], ...]
    checked: dict[str, int]
    logical: Callable[..., Mapping[str, object]]
    ranks: Callable[..., object]
    dtype: str

    def at(self, *, extrapolate: bool = False, **size: int) -> Stored:
        """Return the stored layout at a size.

        Raises InputError if the loader did not run at this size, unless `extrapolate` is set.
        """
        if not extrapolate and size not in (*self.learned, self.checked):
            raise InputError(
                "the loader did not run at this size",
                argument="size",
                got=_said(size),
                expected=f"{_said(self.checked)}, at which the layout was checked, or "
                "extrapolate=True",
            )
        return self.stored(size)

    def stored(self, size: Size) -> Stored:
        """Return the stored layout at any size."""
        tensors = {name: each.shape for name, each in read_logical(self.logical(**size)).items()}
        layouts = {name: form.text(size) for name, form in self.forms.items()}
        return Stored(read_ranks(self.ranks(**size)), tensors, layouts, self.dtype)

    def __repr__(self) -> str:
        sizes = "; ".join(map(_said, self.learned))
        return f"<LearnedSizes: {', '.join(self.forms)}, learned at {sizes}>"

    def __str__(self) -> str:
        lines = [f"{name} = {form}" for name, form in self.forms.items()]
        learned = "; ".join(map(_said, self.learned))
        return "\n".join([*lines, f"learned at {learned}; checked at {_said(self.checked)}"])


def learn_sizes(
    load: Callable[..., Mapping[str, Any]],
    *,
    logical: Callable[..., Mapping[str, object]],
    ranks: Callable[..., object],
    sizes: Sequence[Size],
    check: Size,
    dtype: object = None,
) -> LearnedSizes:
    """Return the layouts of a loader at any size, learned at a few small sizes.

    `sizes`: two or more, each with values of the same parameters. `load(rank, tensors, **size)`,
    `logical(**size)` and `ranks(**size)` are as for `learn`, at a size. `check`: another size, at
    which the loader runs only to check the result on every element. It may be large, because each
    rank's buffers are compared in pieces and then dropped. Raises InputError if a buffer has no
    layout at some size, if no form of layout fits all sizes, or if the form does not hold at the
    size `check`.
    """
    if len(sizes) < 2 or any({*each} != {*check} for each in sizes) or check in sizes:
        raise InputError(
            "a layout must be learned at two or more sizes, and checked at a different one",
            argument="sizes",
            got="; ".join(map(_said, sizes)) or "none",
            expected=f"values of {', '.join(check)} other than {_said(check)}",
        )
    every = [_learned(load, logical, ranks, size, dtype) for size in sizes]
    forms = {name: _form(name, every, sizes) for name in every[0].layouts}
    learned = tuple(dict(size) for size in sizes)
    family = LearnedSizes(forms, learned, dict(check), logical, ranks, every[0].dtype)
    differs = _differs(family, load, dtype)
    if differs is not None:
        raise InputError(
            "the learned layout does not hold at the size `check`",
            argument="check",
            got=differs,
            expected="more sizes to learn from",
        )
    return family


def _differs(
    family: LearnedSizes, load: Callable[..., Mapping[str, Any]], dtype: object
) -> str | None:
    check = family.checked
    tensors, at_size = read_logical(family.logical(**check)), partial(_at, load, check)
    try:
        stored = family.stored(check)
        place = first_difference(at_size, tensors, stored, element_type(tensors, dtype))
        if place is None:
            return None
    except (InputError, ZeroDivisionError) as error:
        place = f"no layout ({error})".splitlines()[0]
    if sum(math.prod(each.shape) for each in tensors.values()) > MOST_SAID:
        said = "; ".join(f"{name} = {form.text(check)}" for name, form in family.forms.items())
        return f"{said} at {_said(check)}; the loader stores something else: {place}"
    now = learn(at_size, logical=tensors, ranks=family.ranks(**check), dtype=dtype)
    for name, form in family.forms.items():
        if not _holds(form, name, now, check):
            return (
                f"{name} = {form.text(check)} at {_said(check)}; "
                f"the loader stores {now.layouts.get(name)}"
            )
    return place


def _at(
    load: Callable[..., Mapping[str, Any]], size: Size, rank: int, tensors: dict[str, Any]
) -> Mapping[str, Any]:
    return load(rank, tensors, **size)


def _learned(
    load: Callable[..., Mapping[str, Any]],
    logical: Callable[..., Mapping[str, object]],
    ranks: Callable[..., object],
    size: Size,
    dtype: object,
) -> Learned:
    found = learn(
        partial(_at, load, size),
        logical=logical(**size),
        ranks=ranks(**size),
        dtype=dtype,
    )
    if found.findings:
        raise InputError(
            "every buffer must have a layout",
            argument="load",
            got=f"at {_said(size)}: {found.findings[0]}",
            expected="a loader that moves elements unchanged",
        )
    return found


def _form(name: str, every: Sequence[Learned], sizes: Sequence[Size]) -> LayoutForm:
    texts = [_expanded(str(each.layouts.get(name)), each.mesh) for each in every]
    kinds: dict[tuple[str, ...], list[int]] = {}
    for place, text in enumerate(texts):
        kinds.setdefault(tuple(NUMBER.split(text)), []).append(place)
    for words, places in sorted(kinds.items(), key=lambda each: -len(each[1])):
        numbers = [list(map(int, NUMBER.findall(texts[place]))) for place in places]
        at = [sizes[place] for place in places]
        formulas = [_formula(values, at) for values in zip(*numbers, strict=True)]
        if all(formulas):
            form = LayoutForm(words, tuple(each for each in formulas if each is not None))
            if all(_holds(form, name, each, size) for each, size in zip(every, sizes, strict=True)):
                return form
    raise InputError(
        "the layouts at all sizes must have the same form",
        argument="sizes",
        got="; ".join(
            f"{name} = {each.layouts.get(name)} at {_said(size)}"
            for each, size in zip(every, sizes, strict=True)
        ),
        expected="sizes at which every number is a product, quotient or minimum of parameters",
    )


def _holds(form: LayoutForm, name: str, learned: Learned, size: Size) -> bool:
    try:
        layout = parse_layout(form.text(size))
    except (InputError, ZeroDivisionError):
        return False
    held = [each[name] for each in learned.held.values() if name in each]
    return len(held) == len(learned.held) and holds(layout, held, learned.tensors, learned.mesh)


def _expanded(text: str, mesh: Mesh) -> str:
    """Return a layout's text with the size of every whole axis: `"x"` becomes `"x":(1)8`, as
    sub-axes are written."""
    sizes = {f'"{name}"': size for name, size in mesh.axes}
    return AXIS.sub(lambda found: found[1] + (found[2] or f":(1){sizes[found[1]]}"), text)


def _formula(values: Sequence[int], sizes: Sequence[Size]) -> SizeFormula | None:
    """Return the simplest formula for a number, given its value at each size: a constant, else a
    function of parameters, else a multiple or a fraction of such a function; None if no formula has
    these values."""
    if len({*values}) == 1:
        return SizeFormula(str(values[0]))
    scaled = []
    for text in _bases([*sizes[0]]):
        found = [SizeFormula(text).value(size) for size in sizes]
        factor = values[0] / found[0]
        if [factor * each for each in found] == [*values]:
            if factor == 1:
                return SizeFormula(text)
            if factor.denominator == 1:
                scaled.append(f"{factor} * {text}")
            elif factor.numerator == 1:
                scaled.append(f"{text} / {factor.denominator}")
    return SizeFormula(scaled[0]) if scaled else None


def _bases(names: list[str]) -> Iterator[str]:
    """Yield functions of parameters, simplest first. Numbers in layouts are multiples of them."""
    pairs, ordered = (each(names, 2) for each in (itertools.combinations, itertools.permutations))
    triples = list(itertools.permutations(names, 3))
    yield from names
    for p, q in pairs:
        yield from (f"min({p}, {q})", f"{p} * {q}")
    both = list(ordered)
    for p, q in both:
        yield from (f"{p} / {q}", f"({p} + {q})", f"({p} + 2 * {q})")
    for p, q, r in triples:
        yield from (f"{p} * {q} / {r}", f"{p} / min({q}, {r})")
    for p, q in both:
        yield f"ceil({p} / {q})"
        for m in _MULTIPLES:
            yield f"ceil({p} / {m}) * {m} / {q}"
            yield f"ceil({p} / ({m} * {q})) * {m}"


def _woven(words: Sequence[str], between: Iterator[str]) -> Iterator[str]:
    for word, each in itertools.zip_longest(words, between, fillvalue=""):
        yield word
        yield each


def _said(size: Size) -> str:
    return ", ".join(f"{name}={value}" for name, value in size.items())
