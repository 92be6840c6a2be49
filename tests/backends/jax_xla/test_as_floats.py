"""Small floats travel as they are on a TPU where its compiler only moves them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from lone import alone

import shardwright as sw
from shardwright.codegen.compile import targets
from shardwright.codegen.compile.hlo_text import HloModule
from shardwright.codegen.compile.targets import compilers
from shardwright.codegen.workers.worker import with_own
from shardwright.ir.errors import InputError

GRID = sw.Mesh({"x": 2, "y": 4})


def of(shape: tuple[int, ...], source: str, target: str, dtype: str = "bfloat16") -> sw.Reshard:
    return sw.Reshard(shape, dtype, GRID.sharding(source), GRID.sharding(target))


AS_FLOATS = {
    "rows_to_columns": of((1024, 2048), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "three": of((32, 64, 1024), '[{"y"}, {}, {}]', '[{}, {}, {"y"}]', "float16"),
    "bytes": of((1024, 4096), '[{"x"}, {}]', '[{}, {"x"}]', "float8_e4m3fn"),
    "gather": of((512, 1024), '[{"x", "y"}, {}]', '[{"x"}, {}]', "float8_e5m2"),
    "groups": of((1024, 1024), '[{"x", "y"}, {}]', '[{}, {"y"}]'),
}
AS_BITS = {
    "padded": of((1024, 2052), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "within a tile": of((256, 256), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "a vector": of((8192,), '[{"x", "y"}]', '[{"x"}]'),
    "large elements": of((1024, 2048), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', "float32"),
    "integers": of((1024, 2048), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', "int8"),
    "a sum": of((1024, 2048), '[{"x"}, {}], unreduced={"y"}', '[{"x"}, {"y"}]'),
}


def test_who_moves_as_floats() -> None:
    """Only what is whole tiles, is not padded, and is but moved."""

    def says(reshard: sw.Reshard) -> bool:
        made = sw.emit(reshard, ("jax_xla",), topology="v5e:2x4").plan
        return "as_floats=True" in alone(made, "jax_xla")

    assert [name for name, reshard in AS_FLOATS.items() if not says(reshard)] == []
    assert [name for name, reshard in AS_BITS.items() if says(reshard)] == []


TEXT = """
import sys
from pathlib import Path
from shardwright.codegen.backends.pallas_tpu.compile.run import _whole
from shardwright.codegen.compile.job import Job
from shardwright.codegen.verify.load import load
for path in sys.argv[2:]:
    job = Job("module", "pallas_tpu", "jax_xla", path, sys.argv[1])
    program = _whole(load(Path(path)), job)
    Path(path).with_suffix(".hlo").write_text(
        program.jit().lower(program.argument).compile().as_text()
    )
"""
MOVES = (
    *("all-gather", "all-to-all", "collective-permute", "copy", "slice", "dynamic-slice"),
    *("dynamic-update-slice", "reshape", "transpose", "fusion", "custom-call"),
)
FREE = ("parameter", "bitcast", "get-tuple-element", "tuple")


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:2x4", "v6e:2x4"])
def test_the_compiler_only_moves_them(tmp_path: Path, topology: str) -> None:
    """Not so a vector that ends within a tile, were it given as floats: it adds what it gathers."""
    try:
        targets.require(targets.parse_targets([topology]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    paths = []
    for name, reshard in AS_FLOATS.items():
        made = sw.emit(reshard, ("jax_xla",), topology=topology).plan
        path = tmp_path / f"{name}.py"
        path.write_text(alone(made, "jax_xla"))
        paths.append(path)
    planted = tmp_path / "planted.py"
    text = alone(sw.emit(of((1088,), '[{"x", "y"}]', '[{"x"}]'), ("jax_xla",)).plan, "jax_xla")
    planted.write_text(text.replace("(_exchange, AXES", "(_exchange, AXES, as_floats=True"))
    asked = subprocess.run(
        [sys.executable, "-P", "-c", TEXT, topology, *map(str, (*paths, planted))],
        env=with_own(compilers()["pallas_tpu"].environment(tmp_path)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert asked.returncode == 0, asked.stderr
    for path in (*paths, planted):
        module = HloModule(path.with_suffix(".hlo").read_text())
        done = {
            re.sub("-(start|done)$", "", each.op)
            for each in module.instructions()
            if re.match(r"\(?(bf16|f16|f8|f32)", each.result)
        }
        assert (done <= {*MOVES, *FREE}) is (path != planted), path
        assert done & {"all-gather", "all-to-all", "collective-permute", "all-reduce"}, path
