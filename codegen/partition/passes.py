"""The passes of a program, in order. `SHARDWRIGHT_DUMP=<pass>` prints the program after a pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardwright.codegen.partition.edges import gather_sub_axes
from shardwright.codegen.partition.local.even import with_even_shards
from shardwright.codegen.partition.local.fold import folded, length
from shardwright.codegen.partition.local.grouped import grouped
from shardwright.codegen.partition.local.leaves import gathered
from shardwright.codegen.partition.local.local_text import format_local
from shardwright.codegen.partition.local.once import with_equal_ops_once
from shardwright.codegen.partition.local.padded_windows import with_padding
from shardwright.codegen.partition.local.permuted import with_permuted_rows
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.products import with_transposed_products
from shardwright.codegen.partition.local.shifted import with_shifts
from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.codegen.partition.local.tidied import tidied
from shardwright.codegen.partition.local.together import together
from shardwright.codegen.partition.owners import owners
from shardwright.codegen.partition.planned import planned
from shardwright.ir.dump import VARIABLE, dump
from shardwright.ir.program import Program
from shardwright.ir.program_text import format_program

if TYPE_CHECKING:
    from shardwright.codegen.partition.partitioned import Partitioned


@dataclass(frozen=True)
class Pass:
    """A step of the pipeline. `run` takes the request and a program, and returns the next program:
    a `Program` before the pass `plan`, a `LocalProgram` from then on."""

    name: str
    run: Callable[[Partitioned, Any], Program | LocalProgram]


def _edges(asked: Partitioned, program: Program) -> Program:
    return gather_sub_axes(program) if asked.gather_sub_axes else program


def _even(asked: Partitioned, program: Program) -> Program:
    return with_even_shards(asked.given, program)


def _permute(asked: Partitioned, program: Program) -> Program:
    return with_permuted_rows(program, asked.constants, asked.mode)


def _plan(asked: Partitioned, program: Program) -> LocalProgram:
    ratings = Ratings(
        regather=asked.gather == "regather", topology=asked.topology, seeded=not asked.kernels
    )
    return planned(program, asked.mesh, asked.mode, ratings, asked.memory_limit)


def _fold(asked: Partitioned, local: LocalProgram) -> LocalProgram:
    arguments = owners(asked.inputs, len(local.body.arguments), "arguments")
    results = owners(asked.outputs, len(local.body.results), "results")
    orders = (gathered(each) for each in (local, grouped(local)))
    made = [folded(each, arguments, results) for each in orders]
    return min(made, key=length)


SHARDING = (
    Pass("propagate", lambda asked, _: asked.propagated.program),
    Pass("edges", _edges),
)
"""The passes from the stated shardings to a sharding of every value."""

LOWERING = (
    Pass("even", _even),
    Pass("pad", lambda _, program: with_padding(program)),
    Pass("shift", lambda _, program: with_shifts(program)),
    Pass("permute", _permute),
    Pass("once", lambda asked, program: with_equal_ops_once(program, asked.mesh)),
    Pass("plan", _plan),
    Pass("transpose", lambda _, local: with_transposed_products(local)),
    Pass("tidy", lambda _, local: tidied(local)),
    Pass("fold", _fold),
    Pass("join", lambda _, local: together(local)),
)
"""The passes from a sharding of every value to the steps of one device."""

PASSES = (*SHARDING, *LOWERING)


def run(passes: Sequence[Pass], asked: Partitioned, program: Program) -> Any:
    """Return a program after these passes, and print it after each pass that `SHARDWRIGHT_DUMP`
    names."""
    made: Program | LocalProgram = program
    for each in passes:
        made = each.run(asked, made)
        if VARIABLE in os.environ:
            dump(each.name, _text(made))
    return made


def _text(program: Program | LocalProgram) -> str:
    return format_program(program) if isinstance(program, Program) else format_local(program)
