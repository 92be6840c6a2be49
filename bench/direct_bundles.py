"""The scalar work, in instruction bundles, of TPU kernels for all-to-alls that send directly to
their receivers, read from the TPU compiler's output without a TPU.

A device synchronises with, sends to and waits for all others, in loops over them. The final bundles
that the compiler dumps give the length and the iterations of these loops; a bundle takes at least
one cycle. In earlier kernels, a device waited for each tile separately, visited its peers one by
one, and took remainders of possibly negative numbers. The table is written to
`direct_bundles.md`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import shardwright as sw
from shardwright.codegen.operations.emit.modules import parts

RESULT = Path(__file__).parent / "direct_bundles.md"
TOPOLOGIES = {8: "v6e:2x4", 16: "v6e:4x4", 256: "v6e:16x16"}
LINE = "from bench.direct_bundles import serve; serve()"


@dataclass(frozen=True)
class Tiles:
    """A kind of tiles.

    `form`: the kernel form for them; `replicas`: the number of devices with the same shard; `rows`,
    `columns`: the extents of the matrix, each as (elements per shard, additional elements).
    """

    form: str
    replicas: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    dtype: str = "bfloat16"

    def reshard(self, devices: int) -> sw.Reshard:
        """Return the reshard from split rows to split columns."""
        shards = devices // self.replicas
        mesh = sw.Mesh({"x": shards, **({"y": self.replicas} if self.replicas > 1 else {})})
        shape = tuple(size * shards + more for size, more in (self.rows, self.columns))
        return sw.Reshard(
            shape, self.dtype, mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
        )


TILES = {
    "of one shape": Tiles("direct", 1, (128, 0), (128, 0)),
    "with replicas": Tiles("direct", 2, (128, 0), (128, 0)),
    "thin": Tiles("slots", 1, (40, -5), (40, -3), "float32"),
    "unaligned": Tiles("windows", 1, (100, 7), (333, 5)),
}
BEFORE = {
    ("of one shape", 8): 594,
    ("of one shape", 16): 1_154,
    ("of one shape", 256): 17_954,
    ("with replicas", 256): 34_863,
    ("thin", 256): 36_385,
    ("unaligned", 256): 119_031,
}
"""The number of bundles of earlier kernels, by kind of tiles and number of devices. The kernels
were emitted at the parent of commit 27aa82be and counted by this script on 2026-11-24."""

DELAY = 4
"""The number of bundles after a branch that run before it is taken."""


@dataclass(frozen=True)
class Loop:
    """A loop over peers: the number of its bundles, and its iterations."""

    bundles: int
    turns: int


@dataclass(frozen=True)
class Bundles:
    """The bundles of a kernel: its loops, and the number of bundles outside them."""

    loops: tuple[Loop, ...]
    around: int

    @property
    def in_all(self) -> int:
        """The number of bundles that run if no branch skips any. A loop of unknown length, which
        waits for remaining transfers, counts as one iteration."""
        return self.around + sum(loop.bundles * loop.turns for loop in self.loops)


def counted(text: str) -> Bundles:
    """Count a kernel's final bundles. A loop extends from its label to the branch after its end
    test, and includes the bundles that run before that branch is taken."""
    pattern = r"^ *(?:0x[0-9a-f]+|0) +(\w\w)? *: *>* *\{(.*)$"
    found = [(m[1], m[2]) for m in re.finditer(pattern, text, re.MULTILINE)]
    labels, loops = list[int](), list[Loop]()
    for number, (kind, words) in enumerate(found):
        if kind == "LB":
            labels.append(number)
        if "loop exit test" not in words:
            continue
        ends = re.search(r"totalorder %\w+, (\d+) /\* loop exit test", words)
        branch = next(k for k in range(number, len(found)) if "sbr.rel" in found[k][1])
        begin = labels.pop()
        # Keep only the outermost loops: their bundles include those of inner loops.
        loop = Loop(branch + DELAY + 1 - begin, int(ends[1]) if ends else 1)
        loops += [loop] if not labels else []
    return Bundles(tuple(loops), len(found) - sum(loop.bundles for loop in loops))


def compiled(tiles: str, devices: int, dump: Path) -> Bundles:
    """Return the bundles of the kernel that sends these tiles between `devices` devices."""
    told = {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true",
    }
    words = [sys.executable, "-c", LINE, tiles, str(devices)]
    ran = subprocess.run(words, env={**os.environ, **told}, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    (text,) = (
        text
        for path in dump.glob("*-shard_map*-final_bundles.txt")
        if "schedule" not in path.name and "vsyncadd.remote" in (text := path.read_text())
    )
    return counted(text)


def serve() -> None:
    """Compile the module for the tiles and the number of devices given as arguments."""
    import jax
    import numpy as np

    from shardwright.codegen.backends.pallas_tpu.compile.run import placed
    from shardwright.codegen.checks.load import load

    tiles, devices = TILES[sys.argv[1]], int(sys.argv[2])
    reshard = tiles.reshard(devices)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pallas_tpu.py"
        made = parts(sw.plan(reshard, "direct"), "pallas_tpu", "shardwright emit", single_file=True)
        path.write_text(made[0].text)
        module = load(path)
    assert f"Form: {tiles.form};" in made[0].text
    names, sizes = zip(*reshard.source.mesh.axes, strict=True)
    chips = np.array(placed(devices, TOPOLOGIES[devices])).reshape(sizes)
    mesh = jax.sharding.Mesh(chips, names)
    x = jax.ShapeDtypeStruct(
        module.PADDED_SOURCE_SHAPE, module.DTYPE, sharding=module.source_sharding(mesh)
    )
    moved = jax.jit(lambda x: module.reshard(x, mesh), out_shardings=module.target_sharding(mesh))
    moved.lower(x).compile()


def main() -> None:
    lines = [
        "# Bundles of scalar work of all-to-alls",
        "",
        "Bundles of the sending kernel on v6e that run if no branch skips any; before: it waited",
        "for every tile, and visited peers one by one. The same kernel shifts unaligned",
        "tiles, one chunk for each peer, which takes most of its bundles.",
        "",
        "| tiles | form | devices | loops | in all | before | of that |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (tiles, devices), before in BEFORE.items():
        with tempfile.TemporaryDirectory() as folder:
            now = compiled(tiles, devices, Path(folder))
        figures = len(now.loops), now.in_all, before
        cells = [tiles, TILES[tiles].form, str(devices), *(f"{figure:,}" for figure in figures)]
        lines.append(f"| {' | '.join(cells)} | {now.in_all / before:.2f} |")
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
