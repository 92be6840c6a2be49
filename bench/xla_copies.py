"""Bytes that plain JAX and XLA's own reshards copy on a v5e: predicted, and those of their HLO.

The reshards of the corpus that jax takes on 8 devices, then the first aligned random ones
(`forms.py`) by their seed that jax takes; only those of which a device does not keep its shard as
it is. A module is what `auto` takes for the topology in plain JAX. XLA's own reshard is predicted
from its HLO for host devices, and compared with that for the topology. Copies are all passes over
memory but collectives (`codegen/compile/hlo_copies.py`). The table is written to `xla_copies.md`.
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
from shardwright.codegen.backends import registry
from shardwright.codegen.compile import TpuCode, compile_bundles
from shardwright.codegen.planner.compare import why_not_xla
from shardwright.codegen.planner.network.timeline import Copies
from shardwright.ir.plan import Plan

TOPOLOGY, DEVICES = "v5e:2x4", 8
COUNT = 70
SEEN = 48
"""Seeds below it were looked at while the rules were made: they were read from the HLO of the first
24 of them, and what modules of the others copy was known before they were final."""
NEAR = 0.1
RESULT = Path(__file__).parent / "xla_copies.md"


@dataclass(frozen=True)
class Row:
    """Predicted bytes beside those of the HLO; `who`: a module, or XLA's own reshard."""

    name: str
    who: str
    predicted: int
    found: int

    @property
    def is_near(self) -> bool:
        """Whether the two are within 10 %."""
        return abs(self.predicted - self.found) <= NEAR * self.found


def cases(count: int) -> dict[str, sw.Reshard]:
    """The first reshards by the rule above."""
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
    """Both programs of every reshard, those that compile."""
    listed = cases(count)
    plans = {
        name: sw.emit(reshard, ("jax_xla",), topology=TOPOLOGY).plan
        for name, reshard in listed.items()
    }
    own = dict(zip(listed, by_xla(list(listed.values())), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        for name, plan in plans.items():
            sw.emit(plan, ("jax_xla",)).write(Path(folder) / name)
        for report in compile_bundles(folder, [TOPOLOGY], time_limit=300):
            said = {"module": copied(plans[report.name]), "XLA's own": own[report.name].copied}
            codes = (report.code, report.xla.code if report.xla else None)
            for (who, predicted), code in zip(said.items(), codes, strict=True):
                if isinstance(code, TpuCode) and code.copied_bytes is not None:
                    yield Row(report.name, who, predicted, code.copied_bytes)


def copied(plan: Plan) -> int:
    """Bytes of passes over memory on a TPU by the timeline of the module of a plan."""
    stages = registry.backend("jax_xla").timeline(plan).stages
    copies = (each for each in stages if isinstance(each, Copies) and not each.on_processor)
    return round(sum(each.nbytes for each in copies))


def summary(found: Sequence[Row]) -> Iterator[str]:
    """How many are near, of all and of those that nobody looked at while the rules were made."""
    for who in ("module", "XLA's own"):
        of = [row for row in found if row.who == who]
        later = [row for row in of if row.name >= f"aligned_{SEEN:03}" and "aligned" in row.name]
        near, fresh = (sum(row.is_near for row in listed) for listed in (of, later))
        yield (
            f"{who}: predicted within {NEAR:.0%} for {near} of {len(of)}; of the {len(later)} from "
            f"seed {SEEN} on, which nobody looked at while the rules were made, for {fresh}."
        )


def main(count: int = COUNT) -> None:
    """Print the summary, and write the table."""
    found = sorted(rows(count), key=lambda row: (row.name.startswith("aligned"), row.name))
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
