"""The TPU compiler's results for kernels of matmuls that move parts during the multiplication,
without a TPU: the cost of compilation, and the fraction of the loops' time in which the MXUs are
busy.

Compilations of each kernel alternate with those of `jnp.matmul` with the same shardings, which XLA
compiles to a windowed einsum, a gather or a reduce-scatter. Seconds are CPU time.

The fraction comes from the final bundles that the compiler dumps. A bundle takes one cycle, or more
if it waits for a matrix unit. The multiplying loop takes at least one cycle per bundle, and at
least the time of its products on the MXUs; the fraction is this time over the larger of the two. A
second fraction includes the work per block: it counts all other bundles of the kernel's loop once
per block, even in branches that are seldom taken, so it is a lower bound.

For extents that are not multiples of blocks, a second table has the cycles that the MXUs take for
whole blocks, the cycles that the operands alone would take, and the compiler's estimate of XLA's
work around the kernel. In a program that contains only a matmul, XLA is free to choose the layouts
of arrays; the kernel needs row-major arrays.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import shardwright as sw
from bench.matmuls import write_modules
from bench.peers import versions
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import depth_of
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import MatmulRing
from shardwright.codegen.hardware.chips import CHIPS
from shardwright.codegen.moves.matmul.plan import plan_matmul

SIZE = 8192
TOPOLOGIES = {"v5e:2x4": 8, "v5e:4x4": 16}
DTYPES = ("bfloat16", "float32", "int8")

KINDS = {
    "all-gather": ('[{"i"}, {}]', '[{}, {"i"}]', '[{}, {"i"}]'),
    "reduce-scatter": ('[{}, {"i"}]', '[{"i"}, {}]', '[{"i"}, {}]'),
}
UNEVEN = (
    ("all-gather", (8240, 8240, 8240)),
    ("reduce-scatter", (8240, 8240, 8240)),
    ("all-gather", (5000, 7000, 3200)),
)
TURNS = 3
PRODUCTS = {"bfloat16": 65536, "float32": 65536, "int8": 131072}
"""The products that a v5e's four MXUs of 128 x 128 compute per cycle, according to the peak rates
in `hardware/rates.py`. Float32 takes one pass of bfloat16."""

PER_ISSUE = {"bfloat16": 16 * 128 * 128, "float32": 8 * 128 * 128, "int8": 32 * 128 * 128}
"""The products of one `vmatmul`, which multiplies one register of rows."""

LINE = "from bench.overlap_tpu import serve; serve()"
HEADINGS = ("topology", "dtype", "sides", "s", "XLA's s", "XLA's form", "code", "XLA's code",
            "VMEM", "HBM", "MXU in the loop", "with what is done once a block")  # fmt: skip


UNEVEN_HEADINGS = ("sides", "i, j, k", "blocks", "MXU cycles of blocks", "of the operands",
                   "MXU in the loop", "XLA's cycles around it", "in its layouts")  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """The compiler's result for a program. `seconds`: the CPU time to compile it; `code` and
    `memory`: the bytes of its code and of the HBM that it needs; `form`: its collectives; `around`:
    the estimated cycles of XLA's work around kernels."""

    seconds: float
    code: int
    memory: int
    form: str
    around: int


@dataclass(frozen=True)
class Busy:
    """The bundles of a kernel. `bundles`: the number in the multiplying loop; `cycles`: the MXU
    cycles of one iteration; `inner`: its iterations per block; `around`: the number in the outer
    loops."""

    bundles: int
    cycles: int
    inner: int
    around: int

    @property
    def in_loop(self) -> float:
        """The fraction of the multiplying loop in which the MXUs are busy."""
        return self.cycles / max(self.cycles, self.bundles)

    @property
    def at_least(self) -> float:
        """The fraction of a block, with all the work per block, in which the MXUs are busy."""
        took = self.inner * max(self.cycles, self.bundles) + self.around
        return self.inner * self.cycles / took


def ring_of(
    kind: str, dtype: str, topology: str, extents: Sequence[int] = ()
) -> tuple[sw.MatmulPlan, MatmulRing]:
    """Return the plan of a matmul with a loop, and its kernel. `extents`: the extents of i, j and
    k, by default SIZE."""
    lhs, rhs, out = KINDS[kind]
    i, j, k = extents or (SIZE, SIZE, SIZE)
    mesh = sw.Mesh({"i": TOPOLOGIES[topology]})
    matmul = sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=mesh)
    plan = plan_matmul(matmul, topology, loop="both", listed=0)
    assert plan.chosen.loop is not None
    return plan, MatmulRing.of(plan, plan.chosen.loop)


def written(plan: sw.MatmulPlan, root: Path) -> Path:
    """Write the module of a plan below a folder and return its path."""
    (path,) = write_modules([plan], root, "pallas_tpu")
    return path


def compiled(
    path: Path, topology: str, turns: int, dump: Path | None = None, *, by_rows: bool = False
) -> list[Compiled]:
    """Return the compiler's results for a module and, without a `dump` folder, for `jnp.matmul`.
    `by_rows`: whether arrays are row-major, as kernels need them."""
    asked = {"module": str(path), "topology": topology, "turns": turns, "alone": dump is not None}
    asked["by_rows"] = by_rows
    told = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    if dump is not None:
        told["LIBTPU_INIT_ARGS"] = f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true"
    ran = subprocess.run(
        [sys.executable, "-c", LINE],
        input=json.dumps(asked),
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    return [Compiled(*row) for row in json.loads(ran.stdout)]


def serve() -> None:
    """Read a JSON object that names a module. Print the compiler's results for it and, if
    requested, for `jnp.matmul`."""
    asked = json.load(sys.stdin)
    functions = list(_programs(asked))[: 1 if asked["alone"] else 2]
    found = [[_made(*each) for each in functions] for _ in range(asked["turns"])]
    rows = [(median(turn[0] for turn in of), *of[0][1:]) for of in zip(*found, strict=True)]
    print(json.dumps(rows))


def _programs(asked: dict[str, Any]) -> Iterator[tuple[Any, list[Any], Any]]:
    import jax
    from jax.experimental.layout import Format, Layout

    from shardwright.codegen.backends.pallas_tpu.compile.run import placed
    from shardwright.codegen.checks.load import load

    module = load(Path(asked["module"]))
    mesh = module._LHS.mesh_of(placed(len(module.IDS), asked["topology"]))

    def on(side: Any) -> Any:
        sharding = side.on(mesh)
        return Format(Layout((0, 1)), sharding) if asked["by_rows"] else sharding

    given = [
        jax.ShapeDtypeStruct(side.padded, module.DTYPE, sharding=on(side))
        for side in (module._LHS, module._RHS)
    ]

    def theirs(a: Any, b: Any) -> Any:
        return jax.numpy.matmul(a, b, preferred_element_type=module.OUT_DTYPE)

    for function in (lambda a, b: module.matmul(a, b, mesh), theirs):
        yield function, given, on(module._OUT)


def _made(function: Any, given: list[Any], out: Any) -> tuple[float, int, int, str, int]:
    import jax

    jax.clear_caches()
    start = time.process_time()
    program = jax.jit(function, out_shardings=out).lower(*given).compile()
    seconds = time.process_time() - start
    sizes = program.memory_analysis()
    memory = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    text = program.as_text()
    found = re.findall(
        r" (all-gather|reduce-scatter|all-reduce|collective-permute)(?:-start)?\(", text
    )
    around = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text)))
    form = ", ".join(f"{found.count(op)} {op}" for op in dict.fromkeys(found))
    return seconds, sizes.generated_code_size_in_bytes, memory, form, around


def busy_of(dump: Path, ring: MatmulRing) -> Busy:
    """Count the bundles of a kernel, from the final bundles of its program in `dump`."""
    texts = (path.read_text() for path in dump.glob("*-final_bundles.txt"))
    (text,) = (text for text in texts if "vmatmul" in text)
    return counted(text, ring)


def counted(text: str, ring: MatmulRing) -> Busy:
    """Count a kernel's bundles. Raises ValueError if the number of products does not match the
    kernel's blocks."""
    bundles = re.findall(r"^ *0x[0-9a-f]+ [ \w]{2,3}: *(>*) *\{(.*)", text, re.MULTILINE)
    depth = max(len(nested) for nested, body in bundles if "vmatmul" in body)
    loop = [body for nested, body in bundles if len(nested) == depth]
    issued = sum(body.count(" = vmatmul.") for body in loop)
    _, i, j, k = ring.blocks.sizes
    along = depth_of(j)
    products, dtype = i * along * k, ring.matmul.dtype
    if issued * PER_ISSUE[dtype] != products:
        raise ValueError(
            f"got {issued} vmatmul in a loop over blocks of {i} x {along} x {k}, expected "
            f"{products // PER_ISSUE[dtype]}"
        )
    around = sum(0 < len(nested) < depth for nested, _ in bundles)
    return Busy(len(loop), products // PRODUCTS[dtype], j // along, around)


def row_of(kind: str, dtype: str, topology: str) -> str:
    plan, ring = ring_of(kind, dtype, topology)
    chip = next(chip for chip in CHIPS if topology.startswith(f"{chip.generation}:"))
    with tempfile.TemporaryDirectory() as folder:
        path = written(plan, Path(folder) / "generated")
        ours, theirs = compiled(path, topology, TURNS)
        dump = Path(folder) / "dump"
        compiled(path, topology, 1, dump)
        busy = busy_of(dump, ring)
    _, i, j, k = ring.blocks.sizes
    cells = (
        topology,
        dtype,
        f"{kind}, blocks {i} x {j} x {k}",
        f"{ours.seconds:.2f}",
        f"{theirs.seconds:.2f}",
        theirs.form,
        f"{ours.code >> 10:,} KiB",
        f"{theirs.code >> 10:,} KiB",
        _part(ring.blocks.nbytes, chip.vmem_bytes),
        _part(ours.memory, chip.hbm_bytes),
        f"{busy.in_loop:.3f} of {busy.bundles:,} bundles",
        f"{busy.at_least:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def uneven_row_of(kind: str, extents: tuple[int, int, int]) -> str:
    """Return the row of a bfloat16 kernel on v5e:2x4 whose last blocks are cut."""
    topology, dtype = "v5e:2x4", "bfloat16"
    plan, ring = ring_of(kind, dtype, topology, extents)
    with tempfile.TemporaryDirectory() as folder:
        path, dump = written(plan, Path(folder) / "generated"), Path(folder) / "dump"
        (by_rows,) = compiled(path, topology, 1, dump, by_rows=True)
        ours, _ = compiled(path, topology, 1)
        busy = busy_of(dump, ring)
    made = 1
    for f, (extent, block) in enumerate(zip(ring.extents, ring.blocks.sizes, strict=True)):
        ends = ring.halves * ring.loop.count if f == ring.factor else (extent,)
        made *= sum(-(-end // block) * block for end in ends)
    _, i, j, k = ring.blocks.sizes
    cells = (
        kind,
        ", ".join(map(str, extents)),
        f"{i} x {j} x {k}",
        f"{made // PRODUCTS[dtype]:,}",
        f"{prod(ring.extents) // PRODUCTS[dtype]:,}",
        f"{busy.in_loop:.3f}",
        f"{by_rows.around:,}",
        f"{ours.around:,}",
    )
    return f"| {' | '.join(cells)} |"


def _part(taken: int, of: int) -> str:
    return f"{taken / 2**20:,.0f} of {of / 2**20:,.0f} MiB"


def text_of(rows: Sequence[str], uneven: Sequence[str]) -> str:
    return "\n".join(
        [
            "# Kernels that multiply while parts travel, through the TPU compiler",
            "",
            f"`python -m bench overlap_tpu`: {SIZE}^3, both ways round the ring; beside each "
            f"`jnp.matmul` with the same shardings. {versions()} Seconds of a processor, lowering "
            f"too, medians of {TURNS} turns; nothing ran on a TPU. VMEM: of the kernel's blocks; "
            "HBM: operands, result and places for what comes.",
            "",
            f"| {' | '.join(HEADINGS)} |",
            "| --- " * len(HEADINGS) + "|",
            *rows,
            "",
            "Extents that are no multiples of blocks, bfloat16 over v5e:2x4: cycles of the MXUs "
            "for whole blocks and for the operands, and of what XLA does around the kernel by the "
            "compiler's estimate, with arrays that lie by rows, as kernels take them, and with "
            "arrays that lie as XLA chooses for a program of nothing but this.",
            "",
            f"| {' | '.join(UNEVEN_HEADINGS)} |",
            "| --- " * len(UNEVEN_HEADINGS) + "|",
            *uneven,
            "",
        ]
    )


def main() -> None:
    asked = ((kind, dtype, to) for to in TOPOLOGIES for dtype in DTYPES for kind in KINDS)
    uneven = (uneven_row_of(*each) for each in UNEVEN)
    print(text_of([row_of(*each) for each in asked], list(uneven)))
