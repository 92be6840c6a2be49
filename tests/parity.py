"""Compares what we propagate with what Shardy's passes do, value by value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import sdy_peer as peer

from shardwright.codegen.partition import tracing
from shardwright.codegen.partition.entry import partition
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.propagate.checked import check_propagated
from shardwright.ir.program import Op, Program, ops_of
from shardwright.ir.program_check import well_formed
from shardwright.ir.program_parse import parse_program
from shardwright.ir.program_text import format_program
from shardwright.ir.sharding import Sharding

Compared = tuple[list[str], int]


def shown(sharding: Sharding | None, rank: int) -> list[str]:
    """The axes of each dimension, as text."""
    if sharding is None:
        return [""] * rank
    return [", ".join(map(str, dim.axes)) for dim in sharding.dims]


def read(text: str, rank: int) -> list[str]:
    """The same of one of Shardy's shardings."""
    dims = re.sub(r"\], (replicated|unreduced)=.*$", "]", peer.bare(text))
    found = re.findall(r"\{([^}]*)\}", dims)
    return [re.sub(r",? ?\?", "", dim) for dim in found] if text else [""] * rank


def by_kind() -> Any:
    """Leave values the names that tracing gives them, as `dot_general_0`, by which they are paired
    with Shardy's."""
    return mock.patch.object(tracing, "named", lambda program, *_: program)


def compare(
    fn: Callable[..., Any],
    avals: tuple[Any, ...],
    mesh: Any,
    inputs: Any = None,
    outputs: Any = None,
    *,
    by_text: bool = False,
    edges: str = "allow",
) -> tuple[list[str], int, Partitioned, Any]:
    """The differences between our shardings and the passes', and how many were compared.

    `by_text` writes the shardings into the module; otherwise jax lowers them. `edges` says what
    becomes of sub-axes in arguments and results.
    """
    pipeline = peer.PIPELINE if edges == "allow" else (*peer.PIPELINE, peer.EDGES)
    if by_text:
        module = peer.module_of(fn, avals)
        peer.annotate(module, list(inputs), list(outputs))
    else:
        said = {} if outputs is None else {"out_shardings": outputs}
        module = peer.module_of(fn, avals, in_shardings=inputs, **said)
    rows = peer.Rows(peer.propagated(module, pipeline))
    shardings = {"in_shardings": inputs, "out_shardings": outputs}
    with by_kind():
        ours = partition(fn, *avals, mesh=mesh, **shardings, sub_axes_at_edges=edges)
    well_formed(ours.given)
    if len(ours.given.values) < 200:  # the text is read as what it was made of
        text = format_program(ours.given)
        assert format_program(parse_program(text, check_propagated)) == text
    differences, count = _compared(well_formed(ours.program), rows)
    return differences, count, ours, rows


def _compared(program: Program, rows: Any) -> Compared:
    found = _Found(program, rows.meshes)
    for value, text in zip(program.body.arguments, rows.arguments, strict=True):
        found.check("argument", program.values[value].sharding, text, value)
    results = zip(program.body.results, program.results, rows.results, strict=True)
    for value, sharding, text in results:
        found.check("result", sharding, text, value)
    ops = [op for op in ops_of(program.body) if len(op.results) == 1]
    names = Counter(program.values[op.results[0]].name.partition(".")[0] for op in ops)
    for op in ops:
        name = program.values[op.results[0]].name
        theirs = rows.by_scope.get(name.partition(".")[0], [])
        if theirs and names[name.partition(".")[0]] == 1:
            found.op(op, _own(op, theirs))
    found.copies([op for op in ops if names[program.values[op.results[0]].name] != 1], rows)
    return found.differences, found.count


def _own(op: Op, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of an op; a constraint after it is one that the passes insert for its group."""
    made = [row for row in rows if row["op"] != "sdy.sharding_constraint"]
    return rows[0] if op.kind == "constrain" else made[-1] if made else rows[-1]


class _Found:
    """Differences so far, and how many shardings were compared."""

    def __init__(self, program: Program, meshes: dict[str, str]) -> None:
        self.program, self.meshes = program, meshes
        self.differences: list[str] = []
        self.count = 0

    def check(self, what: str, sharding: Sharding | None, text: str, value: int) -> None:
        rank = len(self.program.values[value].shape)
        ours, theirs = shown(sharding, rank), read(text, rank)
        self.count += 1
        mesh = self.meshes.get(peer.mesh_name(text), "")
        if mesh and sharding is not None and str(sharding.mesh) != mesh:
            ours.append(str(sharding.mesh))
            theirs.append(mesh)
        if ours != theirs:
            name = self.program.values[value].name
            self.differences.append(f"{what} %{name}: ours {ours}, Shardy's {theirs}")

    def op(self, op: Op, row: dict[str, Any]) -> None:
        """The result of an op, and its operands where it is one op there too."""
        value = op.results[0]
        self.check(row["op"], self.program.values[value].sharding, row["results"][0], value)
        if len(op.operands) != len(row["operands"]):
            return
        for operand, text in zip(op.operands, row["operands"], strict=True):
            if text != "?":
                what = f"operand of %{self.program.values[value].name}"
                self.check(what, self.program.values[operand].sharding, text, operand)

    def copies(self, ops: list[Op], rows: Any) -> None:
        """The copies of a constant, which have no order: all of them at once."""
        ours: dict[str, Counter[str]] = {}
        for op in ops:
            value = self.program.values[op.results[0]]
            listed = ours.setdefault(value.name.partition(".")[0], Counter())
            listed[str(shown(value.sharding, len(value.shape)))] += 1
        for name, counted in ours.items():
            theirs = [row for row in rows.by_scope.get(name, []) if row["results"]]
            last = theirs[-1]["op"] if theirs else ""
            texts = [row["results"][0] for row in theirs if row["op"] == last]
            rank = next(len(v.shape) for v in self.program.values if v.name == name)
            self.count += len(texts)
            if texts and counted != Counter(str(read(text, rank)) for text in texts):
                self.differences.append(f"copies of %{name}: ours {dict(counted)}, theirs {texts}")


def origins(ours: Partitioned, rows: Any) -> Compared:
    """The axes whose origin differs, and how many were compared.

    Copies of a constant, which have one name, are left out.
    """
    program = ours.program
    listed = [op for op in ops_of(program.body) if len(op.results) == 1]
    names = [program.values[op.results[0]].name for op in listed]
    copied = {name.partition(".")[0] for name in names if "." in name}
    arguments = [program.values[value].name for value in program.body.arguments]
    theirs_by_name = rows.by_scope.items()
    constraints = [n for n, each in theirs_by_name if each[-1]["op"] == "sdy.sharding_constraint"]
    differences, count = [], 0
    for name in names:
        theirs = rows.by_scope.get(name, [{"origins": ""}])[-1]["origins"]
        found = {axis.replace('"', ""): origin for axis, origin in ours.origins(name).items()}
        for axis, said in re.findall(r'([\w":()]+) = "([^"]+)"', theirs):
            if name.partition(".")[0] in copied or axis not in found:
                continue  # they speak of axes, too, that did not stay
            kind, number = re.fullmatch(r"(.*?)[_: ]*(\d*)", said).groups()  # type: ignore[union-attr]
            match kind:
                case "input":
                    named = arguments[int(number)]
                case "output":
                    named = f"result {number}"
                case "constraint":
                    named = constraints[int(number)]
                case "self":
                    named = name
                case _:  # mc_0_input: 1
                    manual, side = re.fullmatch(r"mc_(\d+)_(\w+)", kind).groups()  # type: ignore[union-attr]
                    ends = {"input": "argument", "output": "result"}
                    named = f"{ends[side]} {number} of manual_{manual}"
            count += 1
            if found[axis] != named:
                differences.append(f"{axis} of %{name}: ours {found}, Shardy's {named}")
    return differences, count
