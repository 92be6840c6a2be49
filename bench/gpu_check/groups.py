"""Check groups: several tensors in one launch per device."""

from __future__ import annotations

import random
from types import ModuleType

import shardwright as sw
from bench.gpu_check.cases import DTYPES, FEATURES, ROOT, imported
from bench.gpu_check.reference import bits, case_of, compare, example, placed, shards_of
from bench.parts.attempt import Row
from bench.reshards import random_mesh, random_sharding
from shardwright.codegen.operations.emit.group import group_files
from shardwright.codegen.operations.emit.write import write_bundles
from shardwright.codegen.spec.group import Group

TENSORS = 6


def check_group(seed: int) -> Row:
    """Move a random group of tensors twice into poisoned results. Raises ValueError for a wrong
    element."""
    reshards = _reshards(seed)
    module = _emitted(f"group_{seed}", reshards)
    for turn in range(2):
        _check_call(module, reshards, turn)
    return {"tensors": len(reshards)}


def _check_call(module: ModuleType, reshards: dict[str, sw.Reshard], turn: int) -> None:
    shards, out, expected = {}, {}, {}
    for number, (name, reshard) in enumerate(reshards.items()):
        case = case_of(reshard)
        given, wanted = example(case, TENSORS * turn + number)
        shards[name] = placed(shards_of(case.source, given, case.shape).values(), number % 3)
        expected[name] = shards_of(case.target, wanted, case.shape)
        out[name] = placed(expected[name].values())
        for each in out[name]:
            bits(each).bitwise_not_()
    got = module.reshard_local(shards, out=out)
    for name, right in expected.items():
        compare(right, got[name], right.values(), f"{name}, call {turn}")


def _reshards(seed: int) -> dict[str, sw.Reshard]:
    rng = random.Random(f"group{seed}")
    mesh, found = random_mesh(rng), {}
    for number in range(TENSORS):
        rank = rng.randint(1, 3)
        shape = tuple(rng.randint(1, 40) for _ in range(rank))
        sides = (random_sharding(rng, mesh, rank) for _ in range(2))
        found[f"group_{seed}_{number}"] = sw.Reshard(shape, rng.choice(DTYPES[1:]), *sides)
    return found


def _emitted(name: str, reshards: dict[str, sw.Reshard]) -> ModuleType:
    plans = {each: sw.plan(reshard) for each, reshard in reshards.items()}
    for each, plan in plans.items():
        sw.emit(plan, backends=("triton_gpu",), features=FEATURES).write(ROOT / each)
    group = Group(name, tuple(reshards))
    write_bundles(ROOT, (), ((group, group_files(group, plans, ("triton_gpu",))),))
    return imported(name)
