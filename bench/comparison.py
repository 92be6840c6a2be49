"""Compare nine of our reshards with those of other systems that run on this machine, and write
`bench/comparison.md`.

All use four devices. DTensor runs on gloo processes, and its values are compared; XLA's bytes are
those of the collectives in its HLO for CPU; Shardy's steps come from its own pass in jaxlib.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import shardwright as sw
from bench.peers import by_shardy, by_xla, versions
from shardwright.codegen.moves.compare import why_not_xla

FILE = Path(__file__).with_name("comparison.md")
MESH = "x=2,y=2"


@dataclass(frozen=True)
class Case:
    """A reshard on four devices. `placements`: the placements that express its two shardings in
    DTensor, or None; `target_ids`: the target's device ids if they differ from the source's."""

    name: str
    shape: tuple[int, int]
    source: str
    target: str
    placements: tuple[list[str], list[str]] | None = None
    target_ids: tuple[int, ...] | None = None

    @property
    def reshard(self) -> sw.Reshard:
        if self.target_ids is None:
            return sw.Reshard(self.shape, "float32", self.source, self.target, mesh=MESH)
        there = sw.Mesh({"x": 2}, device_ids=list(self.target_ids))
        return sw.Reshard(
            self.shape, "float32", self.source, self.target, mesh="x=2", target_mesh=there
        )

    def asked(self) -> dict[str, Any]:
        """Return the case in the form that `bench.comparison_rank` reads."""
        assert self.placements is not None
        ids: list[Any] = [[0, 1], [2, 3]] if self.target_ids is None else [0, 1]
        there = ids if self.target_ids is None else list(self.target_ids)
        source, target = self.placements
        name = self.name.replace(" ", "_")
        return {
            "name": name,
            "shape": self.shape,
            "source": source,
            "target": target,
            "source_ids": ids,
            "target_ids": there,
        }


CASES = (
    Case("gather both axes", (8, 12), "P(('x', 'y'))", "P()", (["S0", "S0"], ["R", "R"])),
    Case("axes trade places", (8, 12), "P('x', 'y')", "P('y', 'x')", (["S0", "S1"], ["S1", "S0"])),
    Case(
        "FSDP to tensor parallel", (8, 12), "P(('x', 'y'))", "P(None, 'y')",
        (["S0", "S0"], ["R", "S1"]),
    ),
    Case("axes in another order", (8, 12), "P(('x', 'y'))", "P(('y', 'x'))"),
    Case("minor axis kept", (8, 12), "P(('x', 'y'))", "P('y')"),
    Case(
        "sum to shards", (8, 12), '[{}, {}], unreduced={"x"}', "P('x')", (["P", "R"], ["S0", "R"])
    ),
    Case(
        "uneven rows", (5, 3), "[Shard(0), Shard(0)]", "[Replicate(), Replicate()]",
        (["S0", "S0"], ["R", "R"]),
    ),
    Case("uneven both ways", (5, 7), "P('x', 'y')", "P('y', 'x')", (["S0", "S1"], ["S1", "S0"])),
    Case("to other devices", (8, 12), "P('x')", "P(None, 'x')", (["S0"], ["S1"]), (2, 3)),
)  # fmt: skip


def torch_answers(cases: list[Case]) -> list[dict[str, str]]:
    """Return the answers of DTensor and of our module for each case, run on four processes."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([case.asked() for case in cases], file)
        file.flush()
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        run = [sys.executable, *words, "-m", "bench.comparison_rank", file.name]
        done = subprocess.run(run, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if len(lines) != len(cases):
        raise SystemExit(done.stderr[-3000:])
    return [json.loads(line) for line in lines]


def rows() -> list[tuple[str, ...]]:
    """Return the rows of the table, with the headings first."""
    plans = [sw.plan(case.reshard) for case in CASES]
    said = [case for case in CASES if case.placements is not None]
    by_torch = dict(zip((case.name for case in said), torch_answers(said), strict=True))
    jits = [case for case in CASES if why_not_xla(case.reshard) is None]
    xla = dict(
        zip((case.name for case in jits), by_xla([case.reshard for case in jits]), strict=True)
    )
    steps = by_shardy([case.reshard for case in jits])
    shardy = dict(zip((case.name for case in jits), steps, strict=True))
    found = [("case", "bound", "module", "XLA", "Shardy's pass", "DTensor")]
    for case, plan in zip(CASES, plans, strict=True):
        answer, shape = by_torch.get(case.name, {}), "x".join(map(str, case.shape))
        found.append(
            (
                f"{case.name}: {shape}, `{case.source}` to `{case.target}`",
                f"{plan.traffic.bound_received_max:,}",
                ", ".join([f"{plan.traffic.received_max:,}", *_given(answer, "module")]),
                f"{xla[case.name].received_max:,}"
                if case.name in xla
                else f"not compiled: {why_not_xla(case.reshard)}",
                _steps(shardy.get(case.name)),
                answer.get("torch", "cannot express it without `shard_order`"),
            )
        )
    return found


def _given(answer: dict[str, str], key: str) -> list[str]:
    return [answer[key]] if key in answer else []


def _steps(steps: Any) -> str:
    if steps is None:
        return "not run"
    return ", ".join(f"{step.op} {step.axes}".strip() for step in steps) or "none"


def table(lines: list[tuple[str, ...]]) -> str:
    """Format lines as a Markdown table."""
    head, *rest = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest])


def main() -> None:
    torch = metadata.version("torch")
    text = (
        "# Nine reshards of four devices by other systems\n\n"
        f"{versions().removesuffix('.')} and torch {torch}. "
        "Bytes into the busiest device, of float32. On a mesh of two axes "
        "DTensor has the flattened axis too. The values of DTensor and of our module are "
        "compared.\n\n"
        f"{table(rows())}\n"
    )
    FILE.write_text(text, encoding="utf-8")
    print(text)
