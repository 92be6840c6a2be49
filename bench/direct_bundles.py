"""Bundles of scalar work of the TPU kernel of an all-to-all that goes straight from shard to shard,
through the TPU compiler, without a TPU.

A device meets, sends to and waits for all others, by loops over them. The final bundles that the
compiler dumps say how long these are: a bundle takes a cycle or more. Before, a device also went
through all to count whom it hears of, and waited for each tile alone. The table is written to
`direct_bundles.md`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import shardwright as sw
from shardwright.codegen.emit.modules import parts

RESULT = Path(__file__).parent / "direct_bundles.md"
TOPOLOGIES = {8: "v6e:2x4", 16: "v6e:4x4", 256: "v6e:16x16"}
ROWS = 128
"""Of a shard: tiles are as small as they can be."""
LINE = "from bench.direct_bundles import serve; serve()"


@dataclass(frozen=True)
class Bundles:
    """Loops over peers, their bundles for one peer together, and the bundles around them."""

    loops: int
    per_peer: int
    around: int

    def in_all(self, peers: int) -> int:
        """Return how many bundles run where each loop goes through so many peers."""
        return self.around + peers * self.per_peer


BEFORE = Bundles(4, 42, 61)
"""Of the kernels that came before, between as many devices, by the run of this script on
2026-11-23."""


def counted(text: str) -> Bundles:
    """Return what the final bundles of a kernel say."""
    found = re.findall(r"^ *0x[0-9a-f]+ ([ \w]{2,3}): *(>*) *\{", text, re.MULTILINE)
    runs = (list(run) for _, run in groupby(found, key=lambda bundle: len(bundle[1])))
    loops = [run for run in runs if any(kind.strip() == "LB" for kind, _ in run)]
    per_peer = sum(map(len, loops))
    return Bundles(len(loops), per_peer, len(found) - per_peer)


def compiled(devices: int, dump: Path) -> Bundles:
    """Return the bundles of the kernel between so many devices."""
    told = {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true",
    }
    words = [sys.executable, "-c", LINE, str(devices)]
    ran = subprocess.run(words, env={**os.environ, **told}, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    (path,) = (
        path
        for path in dump.glob("*-shard_map*-final_bundles.txt")
        if "schedule" not in path.name and "dma" in path.read_text()
    )
    return counted(path.read_text())


def serve() -> None:
    """Compile the module between as many devices as the argument says."""
    import jax

    from shardwright.codegen.backends.pallas_tpu.compile.run import placed
    from shardwright.codegen.verify.load import load

    devices = int(sys.argv[1])
    mesh, extent = sw.Mesh({"x": devices}), ROWS * devices
    sides = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    plan = sw.plan(sw.Reshard((extent, extent), "bfloat16", *sides), "direct")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pallas_tpu.py"
        made = parts(plan, "pallas_tpu", "shardwright emit", single_file=True)
        path.write_text(made[0].text)
        module = load(path)
    chips = jax.sharding.Mesh(placed(devices, TOPOLOGIES[devices]), ("x",))
    x = jax.ShapeDtypeStruct(
        module.PADDED_SOURCE_SHAPE, module.DTYPE, sharding=module.source_sharding(chips)
    )
    moved = jax.jit(lambda x: module.reshard(x, chips), out_shardings=module.target_sharding(chips))
    moved.lower(x).compile()


def main() -> None:
    """Print the table, and write it."""
    lines = [
        "# Bundles of scalar work of a direct all-to-all",
        "",
        "Of the kernel alone, as many as run where every loop goes through all peers; before: with",
        "a loop that counts whom a device hears of, and a wait for every tile.",
        "",
        "| devices | loops | before | bundles a peer | before | in all | before |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for devices in TOPOLOGIES:
        with tempfile.TemporaryDirectory() as folder:
            now, before = compiled(devices, Path(folder)), BEFORE
        pairs = (
            (now.loops, before.loops),
            (now.per_peer, before.per_peer),
            (now.in_all(devices), before.in_all(devices)),
        )
        cells = [f"{devices}", *(f"{figure:,}" for pair in pairs for figure in pair)]
        lines.append(f"| {' | '.join(cells)} |")
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
