"""What the self-checks of JAX modules find without moving data: planted in modules."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lone import alone

from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

MESH, LINE = Mesh({"x": 2, "y": 4}), Mesh({"x": 4})


def between(shape: tuple[int, ...], source: str, target: str, mesh: Mesh = MESH) -> Reshard:
    return Reshard(shape, "float32", mesh.sharding(source), mesh.sharding(target))


SWAP = between((1024, 512), '[{"x", "y"}, {}]', '[{"y", "x"}, {}]')
COLUMNS = between((64, 512), '[{"x"}, {}]', '[{}, {"x"}]', LINE)
UNEVEN = between((23, 50), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
GAP = r"device \d: pieces have \d+ elements, the target shard \d+"
ONE_END = (
    r"device \d: it (waits for|sends) a tile that its (sender|receiver) does not (send|expect)"
)
ONCE = (
    r"((expected|sent) there, but not (sent|expected) exactly once"
    r"|sent \d times, but expected \d times)"
)
UNFILLED = r"device \d: its tiles do not fill its shard, each place once"
SENT = rf"\(.*\) from device \d to device \d is {ONCE}|{ONE_END}|{GAP}|{UNFILLED}"
FAULTS = {
    "a permutation, the sender": (
        "pallas_tpu",
        SWAP,
        "rem(receiver, 4) * 2",
        "rem(receiver, 4)",
        SENT,
    ),
    "a permutation, the receiver": (
        "pallas_tpu",
        SWAP,
        "rem(sender, 2) * 4",
        "rem(sender + 1, 2) * 4",
        SENT,
    ),
    "tiles, the receiver": (
        "pallas_tpu",
        COLUMNS,
        "return rem(number + sender, 4)",
        "return rem(number, 3)",
        SENT,
    ),
    "windows, the holder": (
        "pallas_tpu",
        UNEVEN,
        "def holder(a0, a1, receiver):\n",
        "def holder(a0, a1, receiver):\n    return 0\n",
        SENT,
    ),
    "windows, a shard": (
        "pallas_tpu",
        UNEVEN,
        "def tile(a0, a1, b0, b1):\n",
        "def tile(a0, a1, b0, b1):\n    return 0, 0, 0, 0\n",
        SENT,
    ),
    "fetches": (
        "jax_xla",
        between((8, 8), '[{"x"}, {"y"}]', '[{}, {"x"}]', Mesh({"x": 2, "y": 2})),
        "MOVES = fetches(FETCHES,",
        "MOVES = fetches(FETCHES[::-1],",
        SENT,
    ),
    "rounds": (
        "jax_xla",
        between((12, 12), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
        "def senders(receiver):\n",
        "def senders(receiver):\n    return [0]\n",
        SENT,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    backend, reshard, right, wrong, said = FAULTS[name]
    text = alone(plan(reshard, "direct"), backend)
    assert right in text
    path = tmp_path / "module.py"
    path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(SystemExit, match=f"^({said})$"):
        load(path)._HOST.self_check()


def test_a_slot_in_a_wrong_place(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    made = plan(between((40, 48), '[{"x"}, {}]', '[{}, {"x"}]', LINE), "direct", topology="v5e:2x2")
    text, path = alone(made, "pallas_tpu"), tmp_path / "module.py"
    changed = "SCHEDULE = SCHEDULE._replace(arrives=SCHEDULE.arrives[::-1])\n"
    assert text.count("_PROGRAM = ") == 1
    path.write_text(text.replace("_PROGRAM = ", f"{changed}_PROGRAM = "))
    with pytest.raises(
        SystemExit, match=r"^slot \d holds the data of \(\d, \d\), expected \(\d, \d\)$"
    ):
        load(path)._HOST.self_check()


@pytest.mark.parametrize("of", ["Peers", "Exchange"])
def test_a_fault_at_few_of_many_devices(of: str, tmp_path: Path) -> None:
    """Beyond 512 devices the check takes some of them, of all coordinates along an axis."""
    pytest.importorskip("jax")
    mesh = Mesh({"x": 32, "y": 32})
    made = plan(between((320, 330), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', mesh), "direct")
    path = tmp_path / "module.py"
    path.write_text(alone(made, "pallas_tpu"))
    host = load(path)._HOST
    proof = host.exchange if of == "Exchange" else host.program.peers
    assert (type(proof).__name__, proof.fault()) == (of, "")
    said = load(path).proved(host)  # the host's file is part of the module
    assert said == "shards tile the tensor, all sends match receives at 33 of 1024 devices; "
    ends = ("arrivals", "departures") if of == "Peers" else ("_senders", "_receivers")
    for end, kept in zip(ends, (2, 4), strict=True):
        right = getattr(proof, end)
        setattr(proof, end, partial(_unless, right, kept))
        assert re.fullmatch(SENT.replace(r"\d", r"\d+"), proof.fault())
        setattr(proof, end, right)


def _unless(right: Callable[[int], Any], count: int, position: int) -> Any:
    """Return nothing for one of `count` positions."""
    return Counter() if position % count == 1 else right(position)


@pytest.mark.parametrize("end", ["sender", "receiver"])
def test_a_permutation_at_few_of_many_devices(end: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    mesh = Mesh({"x": 32, "y": 32})
    made = plan(between((320, 320), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', mesh), "direct")
    path = tmp_path / "module.py"
    path.write_text(alone(made, "pallas_tpu"))
    module = load(path)
    proof = module._HOST.program.peers
    assert (type(proof).__name__, proof.fault()) == ("Permuted", "")
    assert module.proved(module._HOST).endswith(" at 33 of 1024 devices; ")
    right = getattr(proof, end)
    setattr(proof, end, lambda position, number: right(position ^ 1, number))
    assert re.fullmatch(SENT.replace(r"\d", r"\d+"), proof.fault())
    setattr(proof, end, lambda position, number: right(position & -2, number))
    assert re.fullmatch(SENT.replace(r"\d", r"\d+"), proof.fault())


SUMMED = Reshard(
    (12, 8),
    "float32",
    LINE.sharding('[{}, {}], unreduced={"x"}'),
    LINE.sharding('[{"x"}, {}]'),
)
MOVED = {
    "a maximum in place of a sum": (
        plan(SUMMED),
        "jax_xla",
        'y = lax.psum_scatter(x, "x", scatter_dimension=0, tiled=True)',
        'y = lax.pmax(x, "x")[:3]',
        "wrong target shards, or nonzero padding",
    ),
    "boxes, all devices the same": (
        plan(COLUMNS, "direct"),
        "pallas_tpu",
        "    lo1 = position * 128\n",
        "    lo1 = 0\n",
        r"device 1, target: got \[\(0, 64\), \(0, 128\)\], "
        r"expected \[\(0, 64\), \(128, 256\)\]",
    ),
    "boxes, another than that of the sharding": (
        plan(COLUMNS, "direct"),
        "pallas_tpu",
        'SOURCE_AXES, P("x", None))',
        'SOURCE_AXES, P(None, "x"))',
        r"device 0, source: got \[\(0, 16\), \(0, 512\)\], "
        r"expected \[\(0, 64\), \(0, 128\)\]",
    ),
    "what has left is not waited for": (
        plan(COLUMNS, "direct"),
        "pallas_tpu",
        "lambda: wait_for(tile, sent)",
        "lambda: None",
        r"Semaphore \d+ has non-zero count .*",
    ),
    "padding as it comes": (
        plan(between((7, 13, 29), '[{"x"}, {"y"}, {}]', '[{}, {"x"}, {"y"}]'), "direct"),
        "pallas_tpu",
        "            y = zero_ends(y, self.host, self.peers",
        "            zero_ends(y, self.host, self.peers",
        "wrong target shards, or nonzero padding",
    ),
    "all from one slot": (
        plan(between((40, 40), '[{"x"}, {}]', '[{}, {"x"}]', LINE), "direct", topology="v5e:2x2"),
        "pallas_tpu",
        "jnp.array([found.get(k, 0) for",
        "jnp.array([2 for",
        "wrong target shards, or nonzero padding",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        *list(MOVED)[:2],
        *(pytest.param(each, marks=pytest.mark.slow) for each in list(MOVED)[2:]),
    ],
)
def test_planted_faults_that_elements_show(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    made, backend, right, wrong, said = MOVED[name]
    text = alone(made, backend)
    assert text.count(right) == 1
    path = tmp_path / "module.py"
    path.write_text(text.replace(right, wrong))
    flags = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=flags)
    assert ran.returncode == 1
    assert re.fullmatch(said, ran.stderr.splitlines()[-1])
