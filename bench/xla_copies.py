"""The bytes that modules and XLA's own reshards copy on a v5e: those predicted, and those in their
HLO.

The reshards are those of the corpus on 8 devices, then the first aligned random ones (`forms.py`),
by seed; all are reshards that JAX accepts. Reshards in which every device keeps its shard unchanged
are left out. Modules are those for the topology, in plain JAX and with Pallas kernels. XLA's own
reshard is predicted from its HLO for host devices, and compared with that for the topology. Copies
are all passes over memory except collectives and kernels (`codegen/spec/hlo/copies.py`), in
programs that return the result. Kernels whose slots XLA packs are left out, since HLO does not
state the trip counts of the packing loops. So are kernels that send nothing, which the model prices
without a copy of their result. The table is written to `xla_copies.md`.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import shardwright as sw
from bench.forms import aligned
from bench.peers import by_xla, versions
from bench.verdicts import asked
from shardwright.codegen import registry
from shardwright.codegen.backends.pallas_tpu.kernel_forms.windows import STAGED
from shardwright.codegen.moves.compare import why_not_xla
from shardwright.codegen.moves.network.timeline import Copies
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile import TpuCode
from shardwright.ir.plan import Plan

TOPOLOGY, DEVICES = "v5e:2x4", 8
COUNT = 130
SEEN = 114
"""Reshards with seeds below this one were inspected when the rules of the prediction were made."""
NEAR = 0.1
MODULES = {"jax_xla": "plain JAX", "pallas_tpu": "Pallas"}
RESULT = Path(__file__).parent / "xla_copies.md"


@dataclass(frozen=True)
class Row:
    """The bytes that one program copies, predicted and in its HLO. `who`: the kind of a module, or
    XLA's own reshard."""

    name: str
    who: str
    predicted: int
    found: int

    @property
    def is_near(self) -> bool:
        """Whether the two numbers differ by at most 10 %."""
        return abs(self.predicted - self.found) <= NEAR * self.found


def cases(count: int) -> dict[str, sw.Reshard]:
    """Return the first `count` reshards, by name: first the corpus's, then aligned random ones."""
    drawn = ((f"aligned_{seed:03}", aligned(seed, DEVICES)) for seed in itertools.count())
    listed = itertools.chain(asked(0).items(), drawn)
    found = (pair for pair in listed if pair[1].source.mesh.size == DEVICES and _moves(pair[1]))
    return dict(itertools.islice(found, count))


def _moves(reshard: sw.Reshard) -> bool:
    if why_not_xla(reshard) is not None:
        return False
    sides = (side.local_shape(reshard.shape) for side in (reshard.source, reshard.target))
    return len({*sides}) > 1 or sw.plan(reshard, "direct").traffic.received_max > 0


def rows(count: int) -> Iterator[Row]:
    """Yield a row for every program that compiles."""
    listed = cases(count)
    own = dict(zip(listed, by_xla(list(listed.values())), strict=True))
    for backend, who in MODULES.items():
        plans = {
            name: sw.emit(reshard, (backend,), topology=TOPOLOGY).plan
            for name, reshard in listed.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, plan in plans.items():
                sw.emit(plan, (backend,)).write(Path(folder) / name)
            of_xla = backend == "jax_xla"
            for report in compile_bundles(folder, [TOPOLOGY], xla=of_xla, time_limit=300):
                said = {who: (copied(plans[report.name], backend), report.code)}
                if report.xla is not None:
                    said["XLA's own"] = own[report.name].copied, report.xla.code
                for each, (predicted, code) in said.items():
                    if predicted is not None and isinstance(code, TpuCode):
                        assert code.copied_bytes is not None
                        yield Row(report.name, each, predicted, code.copied_bytes)


def copied(plan: Plan, backend: str = "jax_xla") -> int | None:
    """Return the bytes of XLA's passes over memory on a TPU, according to the timeline of a plan's
    module, or None if the timeline does not state them."""
    stages = registry.backend(backend).timeline(plan).stages
    copies = [each for each in stages if isinstance(each, Copies) and not each.on_processor]
    sends = backend == "jax_xla" or plan.traffic.received_max > 0
    if not sends or any(each.what.startswith("XLA packs") for each in copies):
        return None
    return round(sum(each.nbytes for each in copies if each.what != STAGED))


def summary(found: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each kind of program: how many predictions are near, among all reshards and
    among those that were not used to make the rules."""
    for who in (*MODULES.values(), "XLA's own"):
        of = [row for row in found if row.who == who]
        later = [row for row in of if row.name >= f"aligned_{SEEN:03}" and "aligned" in row.name]
        near, fresh = (sum(row.is_near for row in listed) for listed in (of, later))
        yield (
            f"{who}: predicted within {NEAR:.0%} for {near} of {len(of)}; of the {len(later)} from "
            f"seed {SEEN} on, which were not used to make the rules, for {fresh}."
        )


def main(count: int = COUNT) -> None:
    found = sorted(rows(count), key=lambda row: (row.name.startswith("aligned"), row.name, row.who))
    said = list(summary(found))
    text = [
        f"# Megabytes that XLA copies on {TOPOLOGY}: predicted, and in its HLO",
        "",
        versions(),
        "",
        *said,
        "",
        "| reshard | program | predicted | HLO | within 10 % |",
        "| --- " * 5 + "|",
        *(
            f"| {row.name} | {row.who} | {row.predicted / 1e6:.3f} | {row.found / 1e6:.3f} | "
            f"{'yes' if row.is_near else 'no'} |"
            for row in found
        ),
    ]
    RESULT.write_text("\n".join(text) + "\n")
    print("\n".join(said))
