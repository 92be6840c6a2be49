"""The report of an audit: one row per collective, and the redundant communication."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shardwright.ir.reshard import Reshard


@dataclass(frozen=True)
class AuditRow:
    """One collective of a program.

    `over`: the axes of the mesh, or the number and size of groups. `received`: the bytes that the
    busiest device receives in one run of the program; `padded`: the same with the padding of arrays
    in memory; `redundant`: the bytes that a finding saves. `exact`: False if a loop's iteration
    count is unknown; the loop then counts once. `fault`: the fault in its groups, or "".
    """

    op: str
    line: str
    name: str
    over: str
    array: str
    times: int
    exact: bool
    received: int
    padded: int
    redundant: int
    fault: str = ""


@dataclass(frozen=True)
class AuditFinding:
    """One case of redundant communication. `rows`: the indices of its collectives in the report;
    `received`: the bytes that the busiest device receives; `suffices`: the bytes needed for the
    kept parts, or None."""

    kind: str
    line: str
    name: str
    rows: tuple[int, ...]
    parts: int
    received: int
    suffices: int | None
    reshard: Reshard | None
    reshard_name: str = ""

    @property
    def saved(self) -> int:
        """The redundant bytes, 0 if unknown."""
        return 0 if self.suffices is None else self.received - self.suffices

    def toml(self) -> str:
        """Return the reshard as a config table, or ""."""
        if self.reshard is None:
            return ""
        source, target = self.reshard.source, self.reshard.target
        ids = source.mesh.is_iota
        mesh = ",".join(f"{name}={size}" for name, size in source.mesh.axes)
        lines = (
            f"# {self.line or self.name}: {self.received:,} bytes received now",
            "[[reshard]]",
            f'name = "{self.reshard_name}"',
            f"mesh = '{mesh if ids else source.mesh}'",
            f"shape = {list(self.reshard.shape)}",
            f'dtype = "{self.reshard.dtype}"',
            f"source = '{source}'",
            f"target = '{target}'",
        )
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit of a program.

    `devices`: the number of devices; `received`, `padded`: the bytes that the busiest device
    receives in all collectives; `redundant`: the bytes that it would not receive without the
    redundant communication of all findings. More may be redundant, since no lower bound on the
    program's needs is known.
    """

    module: str
    devices: int
    mesh: str
    rows: tuple[AuditRow, ...]
    findings: tuple[AuditFinding, ...]
    received: int
    padded: int
    redundant: int
    notes: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[AuditRow, ...]:
        """The collectives with wrong groups."""
        return tuple(row for row in self.rows if row.fault)

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        for said, finding in zip(plain["findings"], self.findings, strict=True):
            said.pop("reshard"), said.pop("reshard_name")
            said["saved"] = finding.saved
            said["toml"] = finding.toml() or None
        return plain
