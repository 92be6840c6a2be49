"""`reshard` among processes: buffers kept, gradients, DTensors, and errors on every rank."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import devices
from every_feature import EVERY
from gloo_group import ended, run_group
from gpu_cases import make
from matmuls import write_module
from sweeps import sampled
from test_distributed import check_exchange

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.triton_gpu import context as triton_gpu
from shardwright.codegen.backends.triton_gpu.phases import exchanges_of, in_place
from shardwright.codegen.checks.case import placement
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.emit.emit import emit
from shardwright.codegen.text.context import plan_hash
from shardwright.ir import Mesh, Reshard
from shardwright.ir.matmul import Matmul

pytest.importorskip("torch")
pytest.importorskip("triton")

FOUR = make({"x": 2, "y": 2}, (6, 8), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]')
OTHER = make({"x": 2, "y": 2}, (6, 8), '[{"x"}, {"y"}]', '[{}, {"x"}]')
TWO = make({"x": 2}, (4,), '[{"x"}]', "[{}]")
SHARED = make({"x": 2, "y": 2}, (6, 31), '[{"x"}, {}]', '[{"y"}, {}]')
ELSEWHERE = make({"x": 3}, (7, 20), '[{"x"}, {}]', '[{}, {"t"}]', Mesh({"t": 2}, [3, 1]))

ENDS = "source", "target"
WAIT = "other ranks may wait until they time out; with check=True on all ranks, all raise"


def sides(reshard: Reshard) -> tuple[dict[str, str], dict[int, str]]:
    """The source shards and the target shards by device, as hex."""
    source = placement(reshard.source, reshard.source_split)
    target = placement(reshard.target, reshard.target_split)
    tensor = next(iter(oracle.planes(reshard.shape, reshard.dtype)))
    given = {str(d): s.tobytes().hex() for d, s in oracle.shards(source, tensor).items()}
    return given, {d: s.tobytes().hex() for d, s in oracle.shards(target, tensor).items()}


def written(reshard: Reshard, folder: Path, name: str = "case", gradient: bool = True) -> str:
    """The module of a reshard, on disk, with the backward beside it."""
    bundle = emit(reshard, ("triton_gpu",), "direct", gradient=gradient, features=EVERY)
    bundle.write(folder / "bundles" / name)
    return str(folder / "bundles" / name / "triton_gpu.py")


@pytest.mark.parametrize("count", sampled([2, 3, 4, 8], 3))
def test_bytes_on_the_wire(count: int, tmp_path: Path) -> None:
    """With so many processes: rows to columns, a gather, replicas that share, uneven."""
    axes = {"x": count // 2, "y": 2} if count % 2 == 0 else {"x": count, "y": 1}
    check_exchange(
        [
            make(axes, (13, 9), '[{"x", "y"}, {}]', '[{}, {"y", "x"}]'),
            make(axes, (5, 4), '[{"x"}, {"y"}]', "[{}, {}]", dtype="int8"),
            make(axes, (12, 5), '[{"x"}, {}]', '[{}, {"x"}]', dtype="bfloat16"),
        ],
        tmp_path,
    )


ROWS = {
    "rows to the next": make(
        {"x": 4}, (13, 6), '[{"x"}, {}]', '[{"t"}, {}]', Mesh({"t": 4}, [1, 2, 3, 0])
    ),
    "rows to more devices": make(
        {"x": 2}, (13, 6), '[{"x"}, {}]', '[{"t"}, {}]', Mesh({"t": 3}, [2, 1, 3])
    ),
    "a gather of rows": make({"x": 4}, (10, 3, 2), '[{"x"}, {}, {}]', "[{}, {}, {}]"),
    "sums of rows": make({"x": 2, "y": 2}, (6, 5), '[{"y"}, {}], unreduced={"x"}', '[{"x"}, {}]'),
    "one row": make({"x": 4}, (1, 9), '[{}, {"x"}]', "[{}, {}]", dtype="float64"),
    "a vector, int8": make(
        {"x": 2}, (7,), '[{"x"}]', '[{"t"}]', Mesh({"t": 2}, [1, 0]), dtype="int8"
    ),
}
SENT = {
    "a gather of columns": make({"x": 4}, (2, 9), '[{}, {"x"}]', "[{}, {}]"),
    "columns to rows": make({"x": 4}, (8, 12), '[{}, {"x"}]', '[{"x"}, {}]'),
    "sums of columns": make(
        {"x": 2, "y": 2}, (6, 4), '[{}, {"x"}], unreduced={"y"}', '[{"x"}, {}]'
    ),
}
RECEIVED = {
    "rows to columns": make({"x": 4}, (8, 12), '[{"x"}, {}]', '[{}, {"x"}]'),
    "uneven, nested": make(
        {"x": 3, "y": 2},
        (7, 9, 2),
        '[{"x", "y"}, {}, {}]',
        '[{}, {"x"}, {}]',
        source_split="nested",
    ),
    "sums to columns": make({"x": 4}, (3, 7), '[{}, {}], unreduced={"x"}', '[{}, {"x"}]'),
}
PACKED = {
    "columns of rows, from replicas": SHARED,
    "nothing on two ranks": FOUR,
    "a box of a box": make(
        {"x": 2, "y": 2},
        (4, 6, 6),
        '[{}, {"x"}, {"y"}]',
        '[{}, {"y"}, {"x"}]',
        Mesh({"x": 2, "y": 2}, [1, 2, 3, 0]),
    ),
}


def test_tiles_whose_bytes_are_together_are_exchanged_in_place(tmp_path: Path) -> None:
    """At both ends, or at one; the others are packed, and where a rank takes no part."""
    listed = {
        ("source", "target"): ROWS,
        ("source",): SENT,
        ("target",): RECEIVED,
        (): PACKED,
    }
    reshards = [each for found in listed.values() for each in found.values()]
    ways = check_exchange(reshards, tmp_path)
    assert ways == [{ends} for ends, found in listed.items() for _ in found]


def test_where_the_bytes_of_a_box_are(tmp_path: Path) -> None:
    """Against the places of its elements in an array."""
    written(FOUR, tmp_path)
    sys.path.insert(0, str(tmp_path))
    try:
        span = importlib.import_module("bundles._support.torch_wire").span
    finally:
        sys.path.remove(str(tmp_path))
    held, rng = (2, 5, 0, 4, 1, 3), np.random.default_rng(0)
    places = np.arange(3 * 4 * 2).reshape(3, 4, 2)
    for _ in range(200):
        ends = [
            np.sort(rng.choice(np.arange(low, high + 1), 2, replace=False))
            for low, high in zip(held[::2], held[1::2], strict=True)
        ]
        part = tuple(slice(*(ends - low)) for ends, low in zip(ends, held[::2], strict=True))
        own = places[part].ravel()
        together = (np.diff(own) == 1).all()
        expected = (4 * own[0], 4 * own[-1] + 4) if together else None
        assert span(tuple(np.concatenate(ends).tolist()), held, 4) == expected


@pytest.mark.parametrize("interpreted", ["0", "1"])
def test_calls_again_and_again(interpreted: str, tmp_path: Path) -> None:
    """Into `out`, allocating nothing; packing, keeping and unpacking are one copy each, and none
    where tiles are in place."""
    reshards = [FOUR, SHARED, ELSEWHERE]
    cases = [
        {"task": "repeated", "module": written(r, tmp_path, f"case{k}"), "shards": sides(r)[0]}
        for k, r in enumerate(reshards)
    ]
    ranks = run_group(4, cases, tmp_path, interpreted=interpreted == "1")
    for number, reshard in enumerate(reshards):
        assert devices(reshard) == 4
        wanted = sides(reshard)[1]
        made = plan(reshard)
        transfers, ends = made.transfers(), exchanges_of(made)[0].once(in_place)
        both, local = (transfers.sender, transfers.receiver), transfers.is_local
        copies, moving = [both[1][local]], [each[~local] for each in both]
        if ends:
            copies += [side for end, side in zip(ENDS, moving, strict=True) if end not in ends]
        else:  # who sends hears numbers of calls, and who receives tells them
            copies += [{*map(int, np.concatenate(moving))}] * 2
        for lines in ranks:
            found = lines[number]
            expected = wanted.get(found["device"])
            assert (found["result"], found["again"]) == (expected, expected)
            assert found["allocated"] == 0
            assert len(found["launches"]) == sum(found["device"] in each for each in copies)


def test_what_is_wrong_on_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    given, wanted = sides(FOUR)
    case = {"task": "faults", "module": written(FOUR, tmp_path), "shards": given}
    case["other"] = written(OTHER, tmp_path, "other")
    case["plain"] = written(FOUR, tmp_path, "plain", gradient=False)
    case["two"] = written(TWO, tmp_path, "two")
    ranks = [lines[0] for lines in run_group(4, [case], tmp_path)]
    shape, part = "expected (3, 4) of torch.float32", "x[3:6, 0:4] of a whole x"
    plans = [f"plan {plan_hash(plan(r))} ({r.source} -> {r.target})" for r in (FOUR, OTHER)]
    expected = {
        "shape": f"rank 2: source shard of device 2, {part}: got (3, 1) of torch.float32, {shape}",
        "dtype": f"rank 2: source shard of device 2: got (3, 4) of torch.float64, {shape}",
        "order": "rank 2: source shard of device 2: got a tensor that is not "
        "contiguous, expected its contiguous()",
        "negated": "rank 2: source shard of device 2: got a lazily negated view, "
        "expected its resolve_neg()",
        "none": "rank 2: source shard of device 2: got None, expected a tensor",
        "device": "rank 2: source shard of device 2: got a tensor on meta, "
        "expected one on a device that the group serves: cpu:gloo,cuda:gloo",
        "out": "rank 1: out of device 1: got (3,) of torch.float32, "
        "expected (3, 4) of torch.float32",
        "transport": "rank 0: transport 'pigeons': expected 'symmetric', 'exchange' or None",
        "symmetric": "rank 0: transport 'symmetric': got a shard on cpu, expected one on a GPU",
        "differ": "ranks differ: rank 0 has transport None, rank 1 has transport 'exchange'",
        "plans": f"ranks differ: rank 0 has {plans[0]}, rank 3 has {plans[1]}",
        "gradient": "rank 2: a source shard requires a gradient, but this module has none: emit it "
        "with gradient=True (--gradient), or call it in torch.no_grad()",
        "some gradients": "ranks differ: rank 0 has tensors on cpu, rank 2 has tensors on cpu "
        "that require a gradient",
        "larger": "rank 0: group of 4 ranks, expected 2; pass group=dist.new_group(range(2))",
        "later": f"rank 2: source shard of device 2, {part}: got (3, 1) of torch.float32, {shape}",
    }
    for rank in ranks:
        said = dict(rank["said"])
        small = said.pop("group", None)
        assert small == (
            "ValueError: rank 0: group of 2 ranks, expected 4" if rank["device"] < 2 else None
        )
        unheard = said.pop("unheard")
        assert unheard.endswith(f"{shape}; {WAIT}")
        assert unheard.startswith(f"ValueError: source shard of device {rank['device']}")
        memory = said.pop("memory")
        assert memory == f"OutOfMemoryError: rank {rank['device']} of 4, {plans[0]}: full"
        assert said == {name: f"ValueError: {text}" for name, text in expected.items()}
        assert rank["result"] == wanted[rank["device"]]


def test_gradients_among_processes(tmp_path: Path) -> None:
    """The weights are what the target's elements are multiplied by."""
    module = written(FOUR, tmp_path)
    weights = np.arange(48, dtype=np.float32).reshape(6, 8)
    by_device = oracle.shards(placement(FOUR.target, "flat"), weights.view(np.uint32))
    case = {"task": "gradients", "module": module}
    case["weights"] = {str(d): bits.tobytes().hex() for d, bits in by_device.items()}
    for lines in run_group(4, [case], tmp_path):
        row, column = divmod(lines[0]["device"], 2)
        wanted = weights[3 * row : 3 * row + 3, 4 * column : 4 * column + 4]
        assert lines[0]["gradient"] == wanted.tolist()
        assert re.fullmatch(
            r"ValueError: .*device \d requires a gradient, but out does not support gradients: "
            r"omit it, or detach the shard; " + WAIT,
            lines[0]["said"],
        )


def test_a_rank_that_dies(tmp_path: Path) -> None:
    """The others fail within the time-out, saying who they are and what they were doing."""
    case = {"task": "dies", "module": written(FOUR, tmp_path), "shards": sides(FOUR)[0]}
    case["folder"] = str(tmp_path)
    ended(4, [case], tmp_path)
    named = f"plan {plan_hash(plan(FOUR))} ({FOUR.source} -> {FOUR.target}): "
    for rank in range(3):
        text = (tmp_path / f"{rank}.said").read_text()
        assert text.startswith(f"RuntimeError: rank {rank} of 4, {named}"), text


def test_threads_with_groups_of_their_own(tmp_path: Path) -> None:
    """Each has buffers of its own."""
    rows = make({"x": 2}, (1024, 512), '[{"x"}, {}]', '[{}, {"x"}]')
    case = {"task": "threads", "module": written(rows, tmp_path), "calls": 30}
    for lines in run_group(2, [case], tmp_path):
        assert lines[0]["wrong"] == [0, 0]


def test_where_memory_cannot_be_shared_tiles_are_exchanged(tmp_path: Path) -> None:
    """All ranks do so, and say why; who asks for symmetric memory gets an error."""
    case = {"task": "unshared", "module": written(FOUR, tmp_path), "folder": str(tmp_path)}
    named = f"plan {plan_hash(plan(FOUR))} ({FOUR.source} -> {FOUR.target})"
    reasons = ["rank 1: no handle", "symmetric memory is NVSHMEM's, expected CUDA's"]
    for lines in run_group(4, [case], tmp_path):
        assert lines[0]["found"] == [
            [
                "exchange",
                f"{named}: uses transport 'exchange', since {why}",
                f"RuntimeError: transport 'symmetric': {why}",
            ]
            for why in reasons
        ]


def test_hosts_that_share_memory(tmp_path: Path) -> None:
    """By fabric handles on every rank; else tiles are exchanged, and all say why."""
    case = {"task": "hosts", "module": written(FOUR, tmp_path), "folder": str(tmp_path)}
    named = f"plan {plan_hash(plan(FOUR))} ({FOUR.source} -> {FOUR.target})"
    reasons = ["rank 3, on host1: other hosts cannot read its memory", "rank 1: no handle"]
    for lines in run_group(4, [case], tmp_path):
        assert lines[0]["found"] == [["symmetric", "nothing"]] + [
            [
                "exchange",
                f"{named}: uses transport 'exchange', since {why}",
                f"RuntimeError: transport 'symmetric': {why}",
            ]
            for why in reasons
        ]


@pytest.mark.slow
def test_a_backend_of_symmetric_memory_stays_as_it_was_set(tmp_path: Path) -> None:
    """By matmuls too: another than CUDA's is an error on every rank, and is not changed."""
    split = '[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]'
    both = zip(((8, 6), (6, 4)), split[:2], strict=True)
    given = Matmul("float32", *both, split[2], mesh=Mesh({"x": 2}))
    multiplied = write_module(plan_matmul(given, listed=0), "m", tmp_path, backend="triton_gpu")
    case = {"task": "matmul_memory", "module": str(multiplied.module), "folder": str(tmp_path)}
    why = "symmetric memory is NVSHMEM's, expected CUDA's"
    for lines in run_group(2, [case], tmp_path):
        on_every_rank, *said = lines[0]["found"]
        assert on_every_rank == f"ValueError: rank 1: {why}"
        assert said == [f"RuntimeError: rank 0: {why}", "nothing", "nothing"]
        assert lines[0]["sets"] == ["CUDA"]


def test_symmetric_memory(tmp_path: Path) -> None:
    """On stand-ins, files that all processes map: barrier, one launch, barrier; nobody is ahead."""
    reshards = [FOUR, ELSEWHERE]
    cases = [
        {"task": "symmetric", "module": written(r, tmp_path, f"case{k}"), "shards": sides(r)[0]}
        for k, r in enumerate(reshards)
    ]
    cases = [case | {"folder": str(tmp_path)} for case in cases]
    ranks = run_group(4, cases, tmp_path, interpreted=True)
    for number, reshard in enumerate(reshards):
        wanted = sides(reshard)[1]
        for lines in ranks:
            found = lines[number]
            expected = wanted.get(found["device"])
            assert found["results"] == [expected] * 3
            pulled = ["pull_kernel"] if expected else []
            assert found["events"] == ["barrier", *pulled, "barrier"] * 3
            wrong = "out shares memory with `symmetric_source`, which other ranks read"
            said = f"ValueError: {wrong}; {WAIT}"
            assert found["refused"] == (said if reshard is FOUR else "")
            assert found["copied"] == [found["leaves"], found["leaves"], False]


@pytest.mark.parametrize(
    ("shape", "sharding", "placements"),
    [
        pytest.param(
            (6, 8),
            ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]'),
            ("[Shard(0), Shard(1)]", "[Shard(1), Shard(0)]"),
            marks=pytest.mark.slow,
        ),
        (
            (5, 3),
            ('[{"x", "y"}, {}]', '[{}, {"x"}]'),
            ("[Shard(0), Shard(0)]", "[Shard(1), Replicate()]"),
        ),
    ],
)
def test_dtensors(
    shape: tuple[int, int],
    sharding: tuple[str, str],
    placements: tuple[str, str],
    tmp_path: Path,
) -> None:
    """Uneven nested shards too; torch's redistribute is the judge."""
    nested = {"source_split": "nested", "target_split": "nested"}
    there = make({"x": 2, "y": 2}, shape, *sharding, **nested)
    case = {"task": "dtensors", "module": written(there, tmp_path), "mesh": [2, 2]}
    case |= {"a": placements[0], "b": placements[1]}
    before = placements[0].replace("[", "(").replace("]", ")")
    for lines in run_group(4, [case], tmp_path):
        got = "(Replicate(), Replicate())"
        assert lines[0]["placements"] == (
            f"ValueError: got {shape} placed {got}, expected {shape} placed {before}; {WAIT}"
        ).replace("Shard(", "Shard(dim=").replace("Replicate(dim=", "Replicate(")
        assert lines[0]["mesh"] == (
            f"ValueError: target mesh: got [0, 1, 2, 3], expected [[0, 1], [2, 3]]; {WAIT}"
        )


@pytest.mark.parametrize(
    ("source", "target", "split"),
    [
        ('[{"y", "x"}, {}]', "[{}, {}]", "flat"),  # another order, cut as DTensor does not
        ('[{"x":(1)2}, {}]', "[{}, {}]", "flat"),  # half an axis
        ('[{"x", "y"}, {}]', "[{}, {}]", "flat"),  # 5 rows over 4x2 as DTensor does not cut them
    ],
)
def test_what_placements_cannot_say(source: str, target: str, split: str) -> None:
    made = plan(make({"x": 4, "y": 2}, (5, 3), source, target))
    assert "reshard_dtensor" not in triton_gpu.render(Request(made, ""))
