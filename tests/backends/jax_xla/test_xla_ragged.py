"""The ragged all-to-all of the XLA module: when it is chosen, what it moves, that faults are seen.

CPU does not have the collective: `verify` runs modules with what its documentation says in its
place, and the TPU compiler takes them ahead of time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from lone import alone
from running import verified
from style import FORMATTED, LINTED

import shardwright as sw
from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.backends.jax_xla.ragged import Ragged
from shardwright.codegen.backends.jax_xla.rounds import Rounds
from shardwright.codegen.checks.compiled.report import TpuCode
from shardwright.codegen.checks.report import BY_DEFINITION
from shardwright.codegen.checks.workers.worker import with_own
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.bundles.compile import compile_bundles
from shardwright.codegen.operations.compile.targets import compilers
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.spec.hlo import received as hlo
from shardwright.codegen.spec.hlo.collectives import received_bytes
from shardwright.ir import Mesh, Reshard

EIGHT, SIX = Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 3})
HOSTS = "h100"


def thirds(shape: tuple[int, ...], dtype: str) -> Reshard:
    """Rows from halves to thirds, among six devices."""
    rest = ", {}" * (len(shape) - 1)
    halves, parts = (SIX.sharding(f'[{{"{name}"}}{rest}]') for name in "xy")
    return Reshard(shape, dtype, halves, parts)


def nested(shape: tuple[int, ...], dtype: str) -> Reshard:
    """Rows among eight devices from torch's split to ours: uneven ones, other on either side."""
    rows = EIGHT.sharding(f'[{{"x", "y"}}{", {}" * (len(shape) - 1)}]')
    return Reshard(shape, dtype, rows, rows, source_split="nested")


def among(
    shape: tuple[int, ...], dtype: str, source: Sequence[int], target: Sequence[int], axis: int = 0
) -> Reshard:
    """A dimension from a part for each of some devices to one for each of others."""
    split = ", ".join('{"x"}' if each == axis else "{}" for each in range(len(shape)))
    ends = (Mesh({"x": len(ids)}, ids).sharding(f"[{split}]") for ids in (source, target))
    return Reshard(shape, dtype, *ends)


RESHARDS = {
    "uneven_rows": (nested((41, 128), "float32"), "v5e:2x4"),
    "rank_1": (thirds((1003,), "int8"), HOSTS),
    "rank_1_wide": (among((3072,), "uint32", range(8), range(6)), "v6e:2x4"),
    "middle": (among((2, 61, 128), "int32", range(8), (3, 0, 2, 6, 5), axis=1), HOSTS),
    "last": (among((4, 3, 25), "uint8", range(4), (1, 0, 2), axis=2), HOSTS),
    "permuted": (among((50, 256), "bfloat16", (7, 2, 5, 0, 3, 6), (0, 7, 6, 2)), "v5p:2x2x2"),
    "disjoint": (among((50, 256), "int16", range(6), range(8, 12)), "h100:2x8"),
    "bits": (nested((105, 512), "bool"), "v5e:2x4"),
    "empty": (among((5, 3), "uint16", range(8), (1, 2, 0)), "h200"),
}


def direct(reshard: Reshard, topology: str | None) -> sw.Plan:
    return plan(reshard, "direct", topology=topology)


def written(names: tuple[str, ...], folder: Path) -> None:
    for name in names:
        reshard, topology = RESHARDS[name]
        emit(reshard, ("jax_xla",), "direct", topology, gradient=True, single_file=True).write(
            folder / name
        )


@pytest.mark.parametrize(
    ("topology", "how"),
    [
        *((text, Ragged) for text in ("v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4", "h100")),
        *((text, Ragged) for text in ("h200:2x4", "switch:8,ragged=1")),
        *((text, Rounds) for text in (None, "switch", "torus:2x4", "hierarchical:2x4")),
        ("v5e:2x4,ragged=0", Rounds),
    ],
)
def test_it_takes_a_topology_that_has_it(topology: str | None, how: type) -> None:
    made = direct(nested((1001, 128), "float32"), topology)
    assert isinstance(jax_xla.how_of(made), how)
    text = alone(made, "jax_xla")
    assert ("y = ragged(x" in text) == (how is Ragged)


@pytest.mark.parametrize(
    ("reshard", "topology", "how"),
    [
        (nested((1001, 127), "float32"), "v5e:2x4", Ragged),  # rows take four bytes more
        (nested((1001, 100), "float32"), "v5e:2x4", Rounds),  # rows that do not fill the memory's
        (nested((1001, 100), "float32"), HOSTS, Ragged),
        (nested((1001, 128), "float64"), HOSTS, Rounds),
        (thirds((1003,), "int8"), "v5e:2x4", Rounds),
    ],
)
def test_it_takes_rows_that_fill_memory(reshard: Reshard, topology: str, how: type) -> None:
    assert isinstance(jax_xla.how_of(direct(reshard, topology)), how)


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (12, 12)),
        ('[{"x"}, {}]', '[{}, {"y"}]', (8, 9)),
        ('[{"x"}, {"y"}]', '[{"y"}, {}]', (25, 9)),
    ],
)
def test_boxes_that_are_no_slabs_go_in_rounds(
    source: str, target: str, shape: tuple[int, ...]
) -> None:
    reshard = Reshard(shape, "float32", SIX.sharding(source), SIX.sharding(target))
    assert not isinstance(jax_xla.how_of(direct(reshard, HOSTS)), Ragged)


def test_one_permutation_stays_one() -> None:
    reverse = Mesh({"x": 8}, range(7, -1, -1)).sharding('[{"x"}, {}]')
    reshard = Reshard((64, 128), "float32", Mesh({"x": 8}).sharding('[{"x"}, {}]'), reverse)
    how = jax_xla.how_of(direct(reshard, "v5e:2x4"))
    assert isinstance(how, Rounds)
    assert how.count == 1


@pytest.mark.parametrize("name", RESHARDS)
def test_it_moves_the_bytes(name: str) -> None:
    """The reverse too, by the same topology; rows are wide enough that none is padding."""
    reshard, topology = RESHARDS[name]
    for part in parts(
        direct(reshard, topology), "jax_xla", "shardwright emit", gradient=True, single_file=True
    ):
        how, traffic = jax_xla.how_of(part.plan), part.plan.traffic
        assert isinstance(how, Ragged)
        assert f"WIRE_BYTES = {traffic.received_max}  # " in part.text
        assert "Transport: one lax.ragged_all_to_all" in part.text
        assert "The wire carries 1.000 times the bytes of the tiles" in part.text


def test_texts_are_formatted(tmp_path: Path) -> None:
    for name, (reshard, topology) in RESHARDS.items():
        for part in parts(
            direct(reshard, topology),
            "jax_xla",
            "shardwright emit",
            gradient=True,
            single_file=True,
        ):
            (tmp_path / f"{name}_{part.file}").write_text(part.text)
    for command in (FORMATTED, LINTED):
        line = [sys.executable, "-m", *command, str(tmp_path)]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # half a minute
def test_modules_against_the_oracle(tmp_path: Path) -> None:
    """Values, padding and, of floating-point numbers, the derivative, which takes the backward."""
    pytest.importorskip("jax")
    written(("uneven_rows", "middle", "disjoint", "bits", "empty"), tmp_path)
    for report in verified(tmp_path):
        assert (report.verdict, report.detail) == ("ok", BY_DEFINITION), report
        assert BY_DEFINITION in report.checks
        floating = "float" in RESHARDS[report.name][0].dtype
        assert ("derivative" in report.checks) == floating, report.name


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("box.write[axis]", "box.write[axis] + (box.sender == 1)"),
        pytest.param(
            *("box.read[axis]", "box.read[axis] + (box.receiver == 2)"), marks=pytest.mark.slow
        ),
        ("box.shape[axis]", "box.shape[axis] - (box.sender == 0)"),
        ("at(sizes.T, me)", "at(sizes, me)"),
        (
            "y = jnp.zeros(shape, x.dtype)\n        return lax.r",
            "y = jnp.ones(shape, x.dtype)\n        return lax.r",
        ),
        ("rows < size", "rows <= size"),
        pytest.param(
            *("np.roll(table, distance)", "np.roll(table, -distance)"), marks=pytest.mark.slow
        ),
        ("at(reads, me) + rows", "at(writes, me) + rows"),
    ],
)
def test_planted_faults(right: str, wrong: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    written(("rank_1",), tmp_path)
    module = tmp_path / "rank_1" / "jax_xla.py"
    text = module.read_text()
    assert right in text
    module.write_text(text.replace(right, wrong, 1))
    (report,) = verified(tmp_path)
    assert report.verdict == "failed"
    assert "device" in report.detail, report.detail


def test_its_own_check_moves_on_cpu(tmp_path: Path) -> None:
    """XLA has no ragged all-to-all there: what is compiled is permutations."""
    pytest.importorskip("jax")
    said = {"permuted": 12800}
    written(tuple(said), tmp_path)
    for name, count in said.items():
        line = [sys.executable, str(tmp_path / name / "jax_xla.py")]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert done.stdout == (
            "ok: shards tile the tensor, all sends match receives; "
            f"{count} elements moved, every target shard right\n"
        )


def test_its_text_does_not_give_its_sizes() -> None:
    line = "%r = f32[8,128]{1,0} ragged-all-to-all(%a, %b, %c, %d, %e, %f), replica_groups={{0,1}}"
    assert received_bytes(line, 2) is None
    with pytest.raises(ValueError, match="does not give its sizes"):
        hlo.received_of(hlo.RAGGED, line, 4096, 2)


COMPILED = """
import sys
from shardwright.codegen.backends.pallas_tpu.compile import run as pallas_tpu
from shardwright.codegen.checks.load import load
from pathlib import Path
for path in sys.argv[1:]:
    module = load(Path(path))
    program = pallas_tpu._whole if pallas_tpu._same_devices(module) else pallas_tpu._inner
    made = program(module, "v5e:2x4")
    text = made.jit().lower(made.argument).compile().as_text()
    print(text.count(" ragged-all-to-all("), text.count(" collective-permute"))
"""


@pytest.mark.exhaustive
def test_the_tpu_compiler_takes_it(tmp_path: Path) -> None:
    """One ragged all-to-all stays one, on bytes of every width, and WIRE_BYTES are reported."""
    pytest.importorskip("libtpu")
    names = ("uneven_rows", "rank_1_wide", "permuted", "bits")
    written(names, tmp_path)
    for report in compile_bundles([tmp_path], ["v5e:2x4"]):
        assert (report.verdict, report.detail) == ("ok", "")
        assert isinstance(report.code, TpuCode)
        assert report.code.wire_bytes == direct(*RESHARDS[report.name]).traffic.received_max
    needed = with_own(compilers()["pallas_tpu"].environment(tmp_path))
    files = [str(tmp_path / name / "jax_xla.py") for name in names]
    line = [sys.executable, "-c", COMPILED, *files]
    done = subprocess.run(line, env=needed, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "1 0\n" * len(names)


@pytest.mark.slow
def test_a_large_tensor_is_verified_on_a_twin_that_takes_it_too(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    large = nested((100_001, 128), "int32")
    emit(large, ("jax_xla",), "direct", "v5e:2x4", gradient=True).write(tmp_path / "large")
    (report,) = verified(tmp_path)
    assert report.verdict == "ok", report.detail
    assert BY_DEFINITION in report.checks
