"""Passes over memory: as HLO has them, and as the model predicts them around collectives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lone import alone

import shardwright as sw
from bench.peers import by_xla
from bench.reshards import corpus
from bench.xla_copies import TOPOLOGY, copied
from shardwright.codegen.checks.workers.worker import with_own
from shardwright.codegen.moves.network.passes import Laid, Passes, exchanged, passes_of
from shardwright.codegen.operations.compile import targets
from shardwright.codegen.operations.compile.targets import compilers
from shardwright.codegen.spec.hlo.copies import copied_bytes
from shardwright.codegen.spec.hlo.text import HloModule
from shardwright.ir.errors import InputError

HLO = """HloModule copies, entry_computation_layout={(f32[8,128]{1,0})->f32[8,128]{1,0}}

%put (p0: f32[8,128], p1: f32[2,128]) -> f32[8,128] {
  %p0 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %p1 = f32[2,128]{1,0:T(8,128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %updated = f32[8,128]{1,0:T(8,128)} dynamic-update-slice(%p0, %p1, %zero, %zero)
}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %turned = f32[8,128]{0,1:T(8,128)} copy(%x)
  %cut = f32[2,128]{1,0:T(8,128)} slice(%x), slice={[0:2], [0:128]}
  %gathered = f32[16,128]{1,0:T(8,128)} all-gather(%x), dimensions={0}
  ROOT %result = f32[8,128]{1,0:T(8,128)} fusion(%x, %cut), kind=kLoop, calls=%put
}
"""


def test_bytes_of_passes() -> None:
    """A copy goes through all, padded to tiles; a slice through its part; an update in place too;
    a collective is no pass."""
    tile = 4 * 8 * 128
    turned = tile + 4 * 128 * 128  # its rows of 8 elements are padded to 128
    assert copied_bytes(HLO) == turned + 2 * tile + 2 * tile


@pytest.mark.parametrize("itemsize", [2, 4])
def test_passes_of_one_collective(itemsize: int) -> None:
    """One that splits and joins the first dimension has none before and after, but where the result
    leaves or is viewed as integers; one that joins the last has two after."""
    rows = exchanged((8, 16, 128), 0, 0, 2, "apart")
    passed = 2 * itemsize * rows.elements
    assert passes_of([rows], rows.elements, itemsize, as_bits=False) == Passes(0, passed)
    assert passes_of([rows], rows.elements, itemsize, as_bits=True) == Passes(2 * passed)
    columns = exchanged((8, 16, 128), 0, 2, 2, "apart")
    assert passes_of([columns], rows.elements, itemsize, as_bits=False) == Passes(2 * passed)


def test_slices_one_after_another_are_one_pass() -> None:
    slices = [Laid("slice", 64), Laid("slice", 16)]
    assert passes_of(slices, 256, 4, as_bits=False) == passes_of(slices[1:], 256, 4, as_bits=False)
    assert passes_of(slices[1:], 256, 4, as_bits=False) == Passes(2 * 4 * 16)


def test_columns_that_are_joined_and_split_again_stay_as_they_lie() -> None:
    """The pass that would put them in order, and the one that would undo it, are not made."""
    joined = exchanged((1024, 256), 0, 1, 4, "tiled")
    split = exchanged((256, 1024), 1, 0, 4, "tiled")
    gather = Laid("all-gather", 2 * joined.elements)
    passed = 2 * 4 * joined.elements
    alone = [passes_of([each, gather], joined.elements, 4, False) for each in (joined, split)]
    assert [each.staying for each in alone] == [3 * passed, 2 * passed]
    both = passes_of([joined, split, gather], joined.elements, 4, as_bits=False)
    assert both == Passes(2 * passed, 2 * passed)


GRID = sw.Mesh({"x": 2, "y": 4})


def of(shape: tuple[int, ...], source: str, target: str, dtype: str = "bfloat16") -> sw.Reshard:
    return sw.Reshard(shape, dtype, GRID.sharding(source), GRID.sharding(target))


AS_FLOATS = {
    "heads": corpus()["attention_seq_to_heads"],
    "two_rows": corpus()["kv_cache_tp4_to_tp2"],
    "rows_to_columns": of((1024, 2048), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "gather": of((512, 1024), '[{"x", "y"}, {}]', '[{"x"}, {}]', "float8_e5m2"),
    "permute": of((1024, 256), '[{"x", "y"}, {}]', '[{"y", "x"}, {}]', "float16"),
    "two_collectives": of((1024, 1024), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', "float8_e5m2"),
    "cut_and_gathered": of((4096, 1024), '[{"x"}, {}]', "[{}, {}]", "float8_e4m3fn"),
}
WITHIN_TILES = {
    "columns": of((256, 256), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "one_column": of((145, 228, 2), '[{}, {"y"}, {"x"}]', '[{}, {}, {"x"}]', "float8_e5m2"),
    "moved_and_gathered": of((704, 9, 123), '[{"y", "x"}, {}, {}]', '[{"x"}, {}, {}]', "float16"),
}
"""Shards that are no whole tiles, which XLA only moves too."""
BOXES = {
    "boxes_in_rounds": of((1024, 4096), '[{"y"}, {"x"}]', '[{}, {"y"}]', "float32"),
    "boxes_in_a_row": of((64, 512, 1024), '[{}, {"x", "y"}, {}]', '[{"y"}, {}, {"x"}]'),
    "columns_joined_and_split": of(
        (8192, 1024), '[{}, {"x", "y":(2)2, "y":(1)2}]', '[{"x"}, {"y":(2)2}]', "float32"
    ),
}
"""Of which a device cuts several boxes, or which have all-to-alls one after another."""
EXCHANGED_TWICE = of((1024, 256, 256), '[{"x"}, {"y"}, {}]', '[{"y"}, {}, {"x"}]', "float32")
"""Of which XLA's own reshard is two all-to-alls."""
AS_BITS = {
    "a vector": of((1088,), '[{"x", "y"}]', '[{"x"}]'),
    "padded": of((1024, 2052), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]'),
    "an extent of 1": of((4, 64), '[{}, {"y"}]', '[{"y"}, {}]'),
    "boxes": of((1024, 1024), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
    "large elements": of((1024, 2048), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', "float32"),
    "integers": of((1024, 2048), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', "int8"),
    "a sum": of((1024, 2048), '[{"x"}, {}], unreduced={"y"}', '[{"x"}, {"y"}]'),
}
FLAG = ", bits=as_bits_but_on_tpu"


def module_of(reshard: sw.Reshard) -> str:
    return alone(sw.emit(reshard, ("jax_xla",), topology=TOPOLOGY).plan, "jax_xla")


@pytest.mark.parametrize("name", [*AS_FLOATS, *WITHIN_TILES, "a vector", "an extent of 1"])
def test_who_moves_small_floats_as_they_are(name: str) -> None:
    """A module of slices, permutes and collectives, of no vectors nor extents of 1."""
    listed = AS_FLOATS | WITHIN_TILES
    assert (FLAG in module_of((listed | AS_BITS)[name])) is (name in listed)


@pytest.mark.slow
def test_who_moves_them_as_integers() -> None:
    assert [name for name, reshard in AS_BITS.items() if FLAG in module_of(reshard)] == []


COMPILED = """
import json, sys
from pathlib import Path
from shardwright.codegen.backends.pallas_tpu.compile.run import _whole, compile_xla
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.load import load
for path in sys.argv[2:]:
    job, module = Job("module", "pallas_tpu", "jax_xla", path, sys.argv[1]), load(Path(path))
    program = _whole(module, job)
    text = program.jit().lower(program.argument).compile().as_text()
    print(json.dumps([text, compile_xla(module, job).copied_bytes]))
"""
MOVES = {
    *("all-gather", "all-to-all", "collective-permute", "copy", "slice", "dynamic-slice"),
    *("dynamic-update-slice", "reshape", "transpose", "fusion", "custom-call"),
    *("parameter", "bitcast", "get-tuple-element", "tuple"),
}


def compiled(folder: Path, texts: dict[str, str]) -> dict[str, tuple[str, int]]:
    """The HLO of modules for the topology, and the bytes that XLA's own reshard copies there."""
    paths = [folder / f"{name}.py" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    asked = subprocess.run(
        [sys.executable, "-P", "-c", COMPILED, TOPOLOGY, *map(str, paths)],
        env=with_own(compilers()["pallas_tpu"].environment(folder)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert asked.returncode == 0, asked.stderr
    return dict(zip(texts, map(json.loads, asked.stdout.splitlines()), strict=True))


def only_moves(text: str) -> bool:
    """Whether a program does nothing with floats but move them."""
    done = {
        re.sub("-(start|done)$", "", each.op)
        for each in HloModule(text).instructions()
        if re.match(r"\(?(bf16|f16|f8|f32)", each.result)
    }
    assert done & {"all-gather", "all-to-all", "collective-permute", "all-reduce"}
    return done <= MOVES


@pytest.mark.slow
def test_predicted_copies_are_those_of_hlo(tmp_path: Path) -> None:
    """Of modules, and of XLA's own reshards; small floats are moved and nothing else. Planted: a
    module that views them as integers copies more; one of a vector that does not computes."""
    try:
        targets.require(targets.parse_targets([TOPOLOGY]), saving=False)
    except InputError as error:
        pytest.skip(" ".join(str(error).split()))
    cases = {**AS_FLOATS, "floats": AS_BITS["large elements"], "numbers": AS_BITS["integers"]}
    cases |= {"exchanged_twice": EXCHANGED_TWICE, **BOXES}
    texts = {name: module_of(reshard) for name, reshard in (cases | WITHIN_TILES).items()}
    texts["viewed"] = texts["heads"].replace(FLAG, ", bits=as_bits")
    vector = module_of(AS_BITS["a vector"])
    texts["adds"] = vector.replace(
        "XlaProgram(_exchange, AXES, bits=as_bits", f"XlaProgram(_exchange, AXES{FLAG}"
    )
    found, own = compiled(tmp_path, texts), by_xla(list(cases.values()))
    for (name, reshard), theirs in zip(cases.items(), own, strict=True):
        plan = sw.emit(reshard, ("jax_xla",), topology=TOPOLOGY).plan
        text, copied_there = found[name]
        assert copied(plan) == pytest.approx(copied_bytes(text), rel=0.1), name
        assert theirs.copied == pytest.approx(copied_there, rel=0.1), name
    assert all(only_moves(found[name][0]) for name in AS_FLOATS | WITHIN_TILES)
    assert copied_bytes(found["viewed"][0]) > 1.1 * copied_bytes(found["heads"][0])
    assert not only_moves(found["adds"][0])
