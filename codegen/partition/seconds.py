"""The seconds of a program's communications on a topology, according to its network model.

Communications run in sequence and overlap no computation. If XLA overlaps them, the result is an
upper bound.
"""

from __future__ import annotations

from shardwright.codegen.moves.block_moves import rounds_of
from shardwright.codegen.moves.pace import Pace
from shardwright.codegen.partition.local.rates import rates_of
from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.codegen.partition.local.together import Run, rows_of
from shardwright.ir.errors import wrong_type


def seconds_of(program: LocalProgram, topology: str) -> tuple[float, ...]:
    """Return the seconds of each communication, multiplied by its count, in order.

    Raises InputError for an unknown topology, or one with too few devices.
    """
    if not isinstance(topology, str):
        raise wrong_type(topology, str, '"v5e:2x4"', "topology")
    axes = program.axes
    pace = rates_of(axes.pieces, axes.mesh.device_ids, topology).pace
    if pace is None:  # no axis has several devices
        return ()
    return tuple(times * _seconds(program, run, pace) for run, times in rows_of(program))


def _seconds(program: LocalProgram, run: Run, pace: Pace) -> float:
    move, change = run[0], run[0].change
    received = sum(each.change.received for each in run)
    source, shape = program.values[move.operand].layout, program.of(move.operand).shape
    rounds = () if move.inside else rounds_of(change, source, shape, program.axes.pieces)
    return pace.seconds(change.collective, change.axes, received, rounds)
