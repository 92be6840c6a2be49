"""Audit a compiled program from its HLO text: the bytes of each collective, and how much of them is
redundant."""

from __future__ import annotations

import re
from pathlib import PurePath

import numpy as np

from shardwright.codegen.audit.findings import HloFinding, Key, findings
from shardwright.codegen.audit.report import AuditFinding, AuditReport, AuditRow
from shardwright.codegen.audit.reshards import axes_of, faults_of, moved_along, permute_faults_of
from shardwright.codegen.spec.hlo.collectives import HloCollective, collectives_of
from shardwright.codegen.spec.hlo.received import RAGGED, ends
from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh

PERMUTE = "collective-permute"
HLO = (
    "the text of compiled.as_text(), or what XLA_FLAGS=--xla_dump_to=DIR writes after optimizations"
)


def audit(text: str, mesh: Mesh | None = None) -> AuditReport:
    """Return the communication of a program, and how much of it is redundant.

    `text`: the HLO of a program after partitioning; `mesh`: names groups of devices in the report;
    its devices are the program's, in order. Raises InputError for a text that is not partitioned
    HLO, and for a mesh of the wrong size.
    """
    module = HloModule(text)
    _check(module, text)
    try:
        devices = _devices(module, mesh)
        found = collectives_of(module, devices)
    except ValueError as error:
        raise InputError(
            "the groups of a collective could not be parsed",
            got=str(error),
            expected="groups as compiled.as_text() prints them",
        ) from None
    _check_mesh(mesh, devices)
    # With wrong groups, values cannot be traced.
    sound = not any(_fault(each, devices) for each in found)
    vain = findings(module, found, devices, mesh) if sound else ()
    saved = _savings(vain, found, devices)
    rows = tuple(_row(module, each, devices, mesh, saved) for each in found)
    received, padded = (
        int(sum((each.received(devices, padded=flag)[:devices] for each in found),
                np.zeros(devices, dtype=np.int64)).max())
        for flag in (False, True)
    )  # fmt: skip
    said = tuple(_said(module, each, found, number) for number, each in enumerate(vain, 1))
    said = tuple(sorted(said, key=lambda each: (-each.saved, -each.received)))
    name = re.match(r"HloModule ([\w.\-<>]+)", text)
    return AuditReport(
        name[1] if name else "the program", devices, "" if mesh is None else str(mesh),
        rows, said, received, padded, received - _left(vain, found, devices), _notes(found, text),
    )  # fmt: skip


def _check(module: HloModule, text: str) -> None:
    if not any(True for _ in module.instructions()):
        is_mlir = re.search(r"^\s*(module @|func\.func|#loc|%\w+ = stablehlo)", text, re.MULTILINE)
        hint = "; use compiled.as_text() instead of lowered.as_text()" if is_mlir else ""
        raise InputError(
            f"the text is not HLO{hint}",
            got=(text.strip().splitlines() or ["an empty file"])[0],
            expected=HLO,
        )
    if 'custom_call_target="Sharding"' in text or "xla.sdy.FuncResultSharding" in text:
        raise InputError(
            "the program is not partitioned yet, so it has no collectives",
            got="custom calls that state shardings",
            expected=HLO,
        )


def _devices(module: HloModule, mesh: Mesh | None) -> int:
    if module.devices is not None:
        return module.devices
    if mesh is not None:
        return mesh.size
    members = [
        member
        for each in module.instructions()
        if "replica_groups=" in each.rest or "source_target_pairs=" in each.rest
        for group in ends(_kind(each), each.rest, 1)
        for member in group
    ]
    return 1 + max(members, default=0)


def _kind(each: HloInstruction) -> str:
    return PERMUTE if "source_target_pairs=" in each.rest else each.op


def _check_mesh(mesh: Mesh | None, devices: int) -> None:
    if mesh is not None and mesh.size != devices:
        raise InputError(
            "the mesh must have as many devices as the program",
            argument="--mesh",
            got=f"{mesh.size} devices",
            expected=f"{devices}, for example x={devices}",
        )


def _fault(each: HloCollective, devices: int) -> str:
    faults = permute_faults_of if each.op == PERMUTE else faults_of
    return faults(each.members, devices)


def _left(vain: tuple[HloFinding, ...], found: tuple[HloCollective, ...], devices: int) -> int:
    """Return the bytes that the busiest device would receive without the redundant part of each
    finding."""
    of = {_key(each): each for each in found}
    received = [each.received(devices, padded=False)[:devices] for each in found]
    left = np.sum(received, axis=0, dtype=np.int64) if found else np.zeros(1, dtype=np.int64)
    for each in vain:
        if each.suffices is None:
            continue
        times = of[each.collectives[0]].often.times
        left += each.suffices * times
        if each.kind == "rematerialization":
            taken = (of[key].received(devices, padded=False)[:devices] for key in each.collectives)
            left -= sum(taken, np.zeros(devices, dtype=np.int64))
        else:  # an all-reduce of several values, of which only this one is found redundant
            left -= each.moved * times
    return int(left.max())


def _savings(
    vain: tuple[HloFinding, ...], found: tuple[HloCollective, ...], devices: int
) -> dict[Key, int]:
    """Return the redundant bytes of one run by collective, for collectives whose savings are
    known."""
    brought = {_key(each): int(each.received(devices, padded=False).max()) for each in found}
    often = {_key(each): each.often.times for each in found}
    saved = dict.fromkeys(brought, 0)
    for each in vain:
        saves = 0 if each.suffices is None else each.moved - each.suffices
        left = saves * often[each.collectives[0]]
        for key in each.collectives:
            here = min(left, brought[key] - saved[key])
            saved[key] += here
            left -= here
    return saved


def _key(each: HloCollective) -> Key:
    return each.instruction.computation, each.instruction.name


def _row(
    module: HloModule,
    each: HloCollective,
    devices: int,
    mesh: Mesh | None,
    saved: dict[Key, int],
) -> AuditRow:
    received, padded = (int(each.received(devices, padded=flag).max()) for flag in (False, True))
    arrays = [f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in each.arrays]
    more = f" and {len(arrays) - 1} more" if len(arrays) > 1 else ""
    return AuditRow(
        each.op,
        _line(module, each),
        _name(each),
        _over(each, mesh),
        (arrays[0] if arrays else "") + more,
        each.often.times,
        each.often.exact,
        received,
        padded,
        saved.get(_key(each), 0),
        _fault(each, devices),
    )


def _line(module: HloModule, each: HloCollective) -> str:
    return module.line(each.place) or module.line(each.instruction)


def _name(each: HloCollective) -> str:
    named = each.place.text("op_name") or each.instruction.text("op_name")
    return named or each.instruction.name


def _over(each: HloCollective, mesh: Mesh | None) -> str:
    count = len(each.members)
    if each.op == PERMUTE:
        axes = None if mesh is None else moved_along(each.members, mesh)
        return axes or f"{count} pairs"
    axes = None if mesh is None else axes_of(each.members, mesh)
    if axes is not None:
        return axes or "nobody"
    size = max(map(len, each.members), default=0)
    counted = f"{count} x {size} devices" if count > 1 else f"{size} devices"
    return counted if mesh is None else f"{counted}, no axes"


def _said(
    module: HloModule, each: HloFinding, found: tuple[HloCollective, ...], number: int
) -> AuditFinding:
    place = {_key(one): at for at, one in enumerate(found)}
    rows = tuple(place[key] for key in each.collectives)
    first = found[rows[0]]
    line = _line(module, first) or module.line(each.kept)
    times = first.often.times
    stem = re.sub(r"\W", "_", PurePath(line.rpartition(":")[0]).stem)
    name = f"{stem}_{line.rpartition(':')[2]}" if line else "line"
    name = name if name.isidentifier() and number == 1 else f"reshard_{number}_{name}"
    suffices = None if each.suffices is None else each.suffices * times
    return AuditFinding(
        each.kind,
        line,
        _name(first),
        rows,
        each.parts,
        each.moved * times,
        suffices,
        each.reshard,
        name,
    )


def _notes(found: tuple[HloCollective, ...], text: str) -> tuple[str, ...]:
    notes = []
    if not all(each.often.exact for each in found):
        notes.append(
            "the text does not state the trip count of a loop, so the loop counts once, and bytes "
            "are lower bounds"
        )
    kernels = text.count('custom_call_target="tpu_custom_call"')
    if kernels:
        notes.append(
            f"{kernels} Pallas kernels: the text does not show the bytes that kernels send"
        )
    if any(each.op == RAGGED for each in found):
        notes.append("the bytes of a ragged all-to-all are upper bounds")
    return tuple(notes)
