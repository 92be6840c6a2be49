"""The plan of a program: the first plan that fits a memory limit. Plans that need less memory are
tried later.

Values whose extents do not divide are stored with padded ends, unless the whole program receives no
more bytes and costs no more if they are gathered. If padded ends receive fewer bytes and cost more,
the cost is an overestimate, because compilers fuse masks into the ops that read them. If they
receive more bytes and cost less, every device would compute whole values that it could split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.partition.local.cheapest import cheapest
from shardwright.codegen.partition.local.ends import with_padded_ends
from shardwright.codegen.partition.local.memory import Held, most_held, size_of
from shardwright.codegen.partition.local.prices import THRIFT, Ratings
from shardwright.codegen.partition.local.shardy import as_shardy
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.codegen.partition.local.work import cost, received
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Program


def planned(
    program: Program, mesh: Mesh, mode: str, asked: Ratings, memory_limit: int | None
) -> LocalProgram:
    """Return the steps of one device for a propagated program. `asked`: the requested ratings.

    Raises InputError if every plan exceeds the limit.
    """
    plan = cheapest if mode == "cheapest" else as_shardy
    padded = with_padded_ends(program)
    programs = (program,) if padded is program else (padded, program)
    tried: list[tuple[Held, LocalProgram]] = []
    for ratings in _tries(mode, asked):
        for local in in_order([plan(each, mesh, ratings) for each in programs]):
            if memory_limit is None:
                return local
            held = most_held(local)
            if held.bytes <= memory_limit:
                return local
            tried.append((held, local))
    raise _too_large(*min(tried, key=lambda each: each[0].bytes), memory_limit or 0)


def in_order(plans: list[LocalProgram]) -> list[LocalProgram]:
    """Return the plans, the better one first. `plans`: the plan with padded ends and, if it
    differs, the plan without."""
    padded, *gathered = plans
    is_better = gathered and received(gathered[0]) <= received(padded)
    return plans[::-1] if is_better and cost(gathered[0]) <= cost(padded) else plans


def _tries(mode: str, asked: Ratings) -> Iterator[Ratings]:
    """Yield the requested ratings, then ratings that lead to plans with less memory."""
    yield asked
    if not asked.regather:
        yield replace(asked, regather=True)
    if mode == "cheapest":
        yield from (replace(asked, held=held, regather=True) for held in THRIFT)


def _too_large(held: Held, local: LocalProgram, limit: int) -> InputError:
    where = [] if held.line is None else [str(held.line)]
    largest = ""
    if held.largest is not None:
        where.insert(0, local.of(held.largest).name)
        own = size_text(size_of(local, held.largest))
        largest = f", {own} of them {local.of(held.largest).name}"
    return InputError(
        "no plan fits into the memory of a device",
        argument=", ".join(where),
        got=f"{size_text(held.bytes)} in the plan that needs least{largest}",
        expected=f"at most {size_text(limit)}, the memory_limit: split arguments over more axes",
    )
