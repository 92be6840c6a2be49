"""Tiles that are pushed into results in symmetric memory, on files that all processes map."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import describe, devices, random_reshard
from gloo_group import run_group
from gpu_cases import make
from test_distributed import asked
from test_sums_over_gloo import planted

from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

pytest.importorskip("torch")
pytest.importorskip("triton")

TURNED = make({"x": 4}, (8, 12), '[{"x"}, {}]', '[{}, {"x"}]')
UNEVEN = make({"x": 4}, (9, 3), '[{}, {"x"}]', '[{"x"}, {}]', dtype="int8")
ORDERED = make(
    {"x": 2, "y": 2},
    (6, 5),
    '[{"x"}, {}]',
    '[{}, {"y", "x"}]',
    Mesh({"x": 2, "y": 2}, [3, 1, 0, 2]),
)
GATHER = make({"x": 4}, (6, 5), '[{"x"}, {}]', "[{}, {}]", dtype="bfloat16")


def same_devices(reshard: Reshard) -> bool:
    """Whether four devices have a shard before and after."""
    before, after = ({*side.mesh.device_ids} for side in (reshard.source, reshard.target))
    return before == after and devices(reshard) == 4


RANDOM = [reshard for reshard in map(random_reshard, range(200)) if same_devices(reshard)][:24]


def case_of(
    reshard: Reshard, path: Path, edits: dict[str, str], **more: float
) -> tuple[dict, dict]:
    """A case of processes, and the target shards that are wanted."""
    case, wanted = asked(plan(reshard, "direct"), path, planted(edits))
    folder = path.with_suffix("")
    folder.mkdir()
    return case | {"task": "pushed", "folder": str(folder)} | more, wanted


def turned(bits: str) -> str:
    """Bytes in hex, each with another last bit."""
    return bytes(byte ^ 1 for byte in bytes.fromhex(bits)).hex()


def check_pushes(reshards: list[Reshard], folder: Path) -> None:
    """Every call gives the shards of its own values; nothing but results is in shared memory."""
    cases = [
        case_of(each, folder / f"case{number}.py", {}, slow=0, late=0)
        for number, each in enumerate(reshards)
    ]
    ranks = run_group(4, [case for case, _ in cases], folder, interpreted=True)
    for number, (reshard, (_, wanted)) in enumerate(zip(reshards, cases, strict=True)):
        for found in (lines[number] for lines in ranks):
            first = wanted[found["device"]]
            second = first if found["empty"] else turned(first)
            assert found["results"] == [first, second, first], describe(reshard)
            assert found["pulled"] == first
            assert (found["made"], found["pushes"]) == (1, 3)


def test_tiles_are_pushed_into_results(tmp_path: Path) -> None:
    """Uneven shards, of which some are empty, devices in another order, replicas that share."""
    check_pushes([TURNED, UNEVEN, ORDERED, GATHER, *RANDOM[:2]], tmp_path)


@pytest.mark.exhaustive
def test_random_pushes(tmp_path: Path) -> None:
    """Last run whole on 2026-11-27."""
    check_pushes(RANDOM, tmp_path)


def test_push_kernels_compile(tmp_path: Path) -> None:
    """For each way to name the sender; tiles of whole lines are loaded and stored in such."""
    from test_gpu_kernel import assembly, widths
    from test_torch_support import module_of

    turned = Mesh({"x": 2, "y": 2}, [3, 1, 0, 2])
    rows = {"x": 2, "y": 2}, (64, 64), '[{"x"}, {}]'
    for number, reshard in enumerate(
        (make(*rows, '[{}, {"y"}]'), make(*rows, '[{}, {"y"}]', turned), make(*rows, "[{}, {}]"))
    ):
        module, _ = module_of(reshard, tmp_path / str(number))
        found = widths(assembly(module, push=module._HOST.features["push"]))
        assert {*found[1]} == {16}
        assert ("homes" in module.push_kernel.arg_names) == (number == 1)


NEXT = {"shards[0], addresses, device_id": "shards[0], addresses[1:] + addresses[:1], device_id"}


@pytest.mark.slow
def test_nobody_is_ahead(tmp_path: Path) -> None:
    """Each rank is slow in its turn, to push and to read; a tile that goes to the next device is
    seen. What is left unordered is found in `test_gpu_order`, whoever comes first."""
    cases = [
        case_of(TURNED, tmp_path / f"case{number}.py", edits, slow=0.05, late=0.1)
        for number, edits in enumerate(({}, NEXT))
    ]
    ranks = run_group(4, [case for case, _ in cases], tmp_path, interpreted=True)
    for number, (_, wanted) in enumerate(cases):
        found = [lines[number] for lines in ranks]
        expected = [[bits, turned(bits), bits] for bits in map(wanted.__getitem__, range(4))]
        assert ([each["results"] for each in found] == expected) == (number == 0)
    assert [lines[0]["barriers"] for lines in ranks] == [2 * 4] * 4


def test_what_is_refused_of_results(tmp_path: Path) -> None:
    """On every rank, what one gets wrong; and where nothing can be pushed."""
    apart = make({"x": 2}, (8, 4), '[{"x"}, {}]', '[{}, {"t"}]', Mesh({"t": 2}, [2, 3]))
    summed = make({"x": 4}, (8,), '[{}], unreduced={"x"}', '[{"x"}]')
    modules = [
        asked(plan(each, "direct"), tmp_path / f"{number}.py")[0]["module"]
        for number, each in enumerate((apart, summed, TURNED))
    ]
    case = {"task": "refused_results", "modules": modules, "folder": str(tmp_path)}
    for lines in run_group(4, [case], tmp_path):
        fix = "call it without out"
        assert lines[0]["found"] == [
            f"ValueError: symmetric_result: the reshard has devices in one mesh only: {fix}",
            f"ValueError: symmetric_result: the reshard reduces partial sums: {fix}",
            "RuntimeError: rank 3: out of device 3: got (7, 3) of torch.float32, "
            "expected (8, 3) of torch.float32",
            "RuntimeError: rank 2: got a tensor outside symmetric memory",
            "ValueError: ranks differ: rank 0 has tensors on cpu, pushed to `symmetric_result`, "
            "rank 1 has tensors on cpu",
        ]
