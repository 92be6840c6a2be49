"""The communications of a program: numbered, each with its operation, value, bytes and reason."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from shardwright.codegen.ops.layout import LocalLayout, Names
from shardwright.codegen.partition.local.flow import ValueFlow
from shardwright.codegen.partition.local.known import plain_name
from shardwright.codegen.partition.local.remedies import Remedy, remedy
from shardwright.codegen.partition.local.repeated import Repetition
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import LocalProgram, where_taken
from shardwright.codegen.partition.local.together import rows_of

FIELDS = (
    *("number", "op", "axes", "value", "shape", "received", "times", "bytes", "line", "reason"),
    *("remedy", "saving"),
)
"""The keys of a communication in `plan.json`."""


@dataclass(frozen=True)
class Communication:
    """One collective, an all-reduce of several values, or the rounds of a direct exchange.
    `received`: the bytes that the busiest device receives each time, in all rounds together."""

    number: int
    op: str
    axes: Names
    value: str  # the name of the value in the program, or of the values: "d_w, d_b"
    shape: str  # type of each value after the collective: "f32[16@d,32]"
    received: int
    times: int  # iterations of enclosing loops, times calls of its function
    line: str
    reason: str
    remedy: str  # a change that would make the collective unnecessary or cheaper
    saving: int  # the most bytes that the remedy saves; it may add bytes elsewhere
    where: str = ""  # how often it runs in a branch or a loop of unknown length: "each iteration"
    rounds: int = 1  # the number of collectives, which run one after another
    values: int = 1  # the number of values
    repeated: str = ""  # the work that devices repeat after it, in words

    @property
    def bytes(self) -> int:
        return self.received * self.times

    @property
    def count(self) -> int:
        """The number of collectives that run in all."""
        return self.rounds * self.times

    def to_dict(self, written: WrittenRow | None = None) -> dict[str, object]:
        """Return the fields for `plan.json`. `written`: the communication as a module writes it."""
        fields = {**dataclasses.asdict(self), "axes": list(self.axes), "bytes": self.bytes}
        where = {"where": self.where} if self.where else {}
        rounds = {"rounds": self.rounds} if self.rounds > 1 else {}
        own = {} if written is None else dataclasses.asdict(written)
        return {**{name: fields[name] for name in FIELDS}, **where, **rounds, **own}

    @property
    def called(self) -> str:
        """The collective in words: `all-to-all`, `all-reduce of 3 values`, or for several rounds `3
        permutes`."""
        op = self.op.replace("_", "-")
        op += f" of {self.values} values" if self.values > 1 else ""
        return op if self.rounds == 1 else f"{self.rounds} {op}s"

    @property
    def head(self) -> str:
        """The communication without its reason: `[C3] all-gather over d, 96 B, 2 times`."""
        over = ", ".join(self.axes)
        times = f", {self.times} times" if self.times > 1 else ""
        times += f", {self.where}" if self.where else ""
        return f"[C{self.number}] {self.called} over {over}, {size_text(self.received)}{times}"

    def __str__(self) -> str:
        return f"{self.head}: {self.reason}"


@dataclass(frozen=True)
class WrittenRow:
    """A communication as a module writes it. `function`: the function that makes it; `names`: the
    names of its results there; `types`: their types, if a comment states them; `reason`: the
    reason, with that function's names."""

    function: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    reason: str


WrittenRows = Mapping[int, WrittenRow]
"""The communications that a module writes, by number."""
NO_ROWS: WrittenRows = MappingProxyType({})


def communications(program: LocalProgram) -> dict[int, Communication]:
    """Return the communications of a program, by the first local value that each produces."""
    return {found[0]: found[1] for found in _numbered(program)}


def _numbered(program: LocalProgram) -> Iterator[tuple[int, Communication]]:
    where, flow = where_taken(program), ValueFlow(program)
    repetition = Repetition(flow)
    for number, (run, times) in enumerate(rows_of(program), 1):
        step, *_ = run
        change, values = step.change, [program.of(each.operand) for each in run]
        mended = _most([remedy(flow, each) for each in run])
        again = repetition.after(step)
        reasons = [joined_reasons([each.reason for each in run])]
        remedies = [mended.text]
        if again is not None:
            reasons.append(again.reason)
            remedies += filter(None, [repetition.remedy(again)])
        types = (
            notation(value.dtype, value.shape, each.change.after)
            for value, each in zip(values, run, strict=True)
        )
        yield (
            step.result,
            Communication(
                number,
                change.collective,
                change.axes,
                ", ".join(map(plain_name, values)),
                ", ".join(types),
                sum(each.change.received for each in run),
                times,
                "" if step.line is None else str(step.line),
                "; ".join(reasons),
                "; ".join(remedies),
                mended.saved * times,
                where.get(step.result, ""),
                change.collectives,
                len(run),
                "" if again is None else again.reason,
            ),
        )


def _most(remedies: Sequence[Remedy]) -> Remedy:
    return max(remedies, key=lambda each: each.saved)


def joined_reasons(reasons: Sequence[str]) -> str:
    """Merge the reasons for a communication of several values into one sentence per op, and one for
    all results.

    >>> joined_reasons(["mul needs the sum of a, which is b", "mul needs the sum of c, which is b"])
    'mul needs the sum of each value, which is b'
    >>> joined_reasons([f"mul needs the reduced value of {name}, which is b" for name in "ac"])
    'mul needs the reduced value of each, which is b'
    >>> joined_reasons(["result[0] must be [{}]", "result[1] must be []"])
    'result[0] and 1 like it must be reduced'
    """
    alike: dict[str, list[list[str]]] = {}
    for sentence in dict.fromkeys(each for reason in reasons for each in reason.split("; ")):
        words = sentence.split(" ")
        alike.setdefault(words[0].partition("[")[0], []).append(words)
    return "; ".join(map(_common, alike.values()))


def _common(sentences: Sequence[list[str]]) -> str:
    """Merge sentences that start with the same word: "each value", or "each" after "the reduced
    value of", replaces the words in which the sentences differ. For results, return the first
    sentence's result and the number of the others."""
    if len(sentences) == 1:
        return " ".join(sentences[0])
    if sentences[0][0].startswith("result["):
        return f"{sentences[0][0]} and {len(sentences) - 1} like it must be reduced"
    start, end = (
        len(list(itertools.takewhile(lambda same: len(set(same)) == 1, zip(*each, strict=False))))
        for each in (sentences, [sentence[::-1] for sentence in sentences])
    )
    first, shortest = sentences[0], min(map(len, sentences))
    start = min(start, shortest - 1)
    end = min(end, shortest - 1 - start)
    inner = [sentence[len(sentence) - end - 1] for sentence in sentences]
    comma = "," if all(word.endswith(",") for word in inner) else ""
    each = "each" if first[:start][-3:] == ["reduced", "value", "of"] else "each value"
    return " ".join([*first[:start], f"{each}{comma}", *first[len(first) - end :]])


def notation(dtype: str, shape: tuple[int, ...], layout: LocalLayout) -> str:
    """Format a type with the axes that split it, such as `f32[16@d,32]`. For a partial value,
    `terms of a sum over t` follows."""
    dims = (
        f"{extent}@{'@'.join(names)}" if names else str(extent)
        for extent, names in zip(shape, layout.dims, strict=True)
    )
    text = f"{dtype}[{','.join(dims)}]"
    if layout.partial:
        text += f" terms of a {layout.operator} over {', '.join(layout.partial)}"
    return text


def program_json(
    program: LocalProgram,
    topology: str | None = None,
    seconds: Sequence[float] = (),
    costs: Mapping[str, int] = MappingProxyType({}),
    written: WrittenRows = NO_ROWS,
) -> str:
    """Return `plan.json`: the mesh, arguments and results, and one line per communication.

    `seconds`: the time of each communication on `topology`; `costs`: costs of the whole program, by
    name; `written`: the communications as the program's module writes them.
    """
    found = list(communications(program).values())
    body = program.body
    sides = {"arguments": body.arguments, "results": body.results}
    lines = [f'  "program": {json.dumps(program.program.name)},']
    lines.append(f'  "mesh": {json.dumps(str(program.axes.mesh))},')
    for side, numbers in sides.items():
        rows = [json.dumps(_typed(program, number)) for number in numbers]
        lines += [f'  "{side}": [', *_listed(rows), "  ],"]
    lines.append(f'  "bytes_received": {sum(each.bytes for each in found)},')
    lines += [f'  "{name}": {cost},' for name, cost in costs.items()]
    entries = [each.to_dict(written.get(each.number)) for each in found]
    if topology is not None:
        lines.append(f'  "topology": {json.dumps(topology)},')
        lines.append(f'  "seconds": {_rounded(sum(seconds))},')
        for entry, each in zip(entries, seconds, strict=True):
            entry["seconds"] = _rounded(each)
    rows = [json.dumps(entry) for entry in entries]
    lines += ['  "communications": [', *_listed(rows), "  ]"]
    return "\n".join(["{", *lines, "}"]) + "\n"


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.3g}")


def _typed(program: LocalProgram, number: int) -> dict[str, str]:
    value = program.of(number)
    layout = program.values[number].layout
    return {"name": value.name, "type": notation(value.dtype, value.shape, layout)}


def _listed(rows: list[str]) -> list[str]:
    return [f"    {row}{',' if place < len(rows) - 1 else ''}" for place, row in enumerate(rows)]
