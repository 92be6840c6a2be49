"""The part `values`: bundles, random reshards and groups, compared bit by bit; matmuls, compared
within rounding; and self-checks."""

from __future__ import annotations

import contextlib
import io
import runpy
from collections.abc import Iterator
from functools import partial
from types import ModuleType

from bench.gpu_check import cases, groups, products
from bench.gpu_check.home import DRY, RANDOM, torch
from bench.gpu_check.reference import Tensor, bits, case_of, compare, example, placed, shards_of
from bench.parts.attempt import Job, LeftOutError, Row
from shardwright.codegen.checks.case import Case

NOT_RUN = 3
"""The exit status of a self-check that ran nothing."""

FEW_BYTES = 2**26
"""The bytes below which tensors are also moved by few programs."""

GROUPS = 1 if DRY else 4
"""The number of random groups of tensors."""

NEW_SEED = 7919
"""The number added to a seed to get different bits for the same memory."""

PRODUCTS = (("gather", (64, 48, 32)), ("scatter", (40, 64, 24)), ("gather", (37, 29, 41)))
"""Matmuls on four devices: the kind of their moves (`products.SHARDINGS`), and the extents of i, j
and k."""


def check_values(
    module: ModuleType, case: Case, seed: int, *, few: bool = False, offset: int = 0
) -> Row:
    """Move random bits several times, always in the same memory. Raises ValueError for a wrong
    element. `few`: whether to move them by 1 and by 7 programs too; `offset`: how far shards are
    from an aligned address, in elements."""
    given, wanted = example(case, seed)
    shards = placed(shards_of(case.source, given, case.shape).values(), offset)
    right = shards_of(case.target, wanted, case.shape)
    out = placed((torch.empty_like(each) for each in right.values()), offset)
    turns: list[dict[str, object]] = [{"out": out}, {}, {"out": out}]
    turns += [{"out": out, "programs": number} for number in (1, 7) if few]
    for turn, asked in enumerate(turns):
        _poison(case, out, turn)
        got = module.reshard_local(shards, **asked)
        compare(right, got, right.values(), f"call {turn}")
        if turn == 0:
            given, wanted = example(case, seed + NEW_SEED)
            _refill(shards, shards_of(case.source, given, case.shape).values())
            right = shards_of(case.target, wanted, case.shape)
    return {"bytes": sum(each.nbytes for each in out), "devices": len(out)}


def _poison(case: Case, out: list[Tensor], turn: int) -> None:
    """Fill results with other bytes than in the previous call."""
    value = turn % 2 if case.dtype == "bool" else (0xFF, 0)[turn % 2]
    for each in out:
        bits(each).view(torch.uint8).fill_(value)


def _refill(shards: list[Tensor], new: object) -> None:
    for old, each in zip(shards, new, strict=True):
        bits(old).copy_(bits(each))


def _bundle(bundle: cases.Bundle) -> Row:
    module = bundle.module()
    return check_values(module, case_of(bundle.reshard), 1, few=bundle.bytes < FEW_BYTES)


def self_check(name: str) -> Row:
    """Run a module of `generated/` as `python -m` does. It exits with a message if anything is
    wrong."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(f"generated.{name}.triton_gpu", run_name="__main__")
    except SystemExit as error:
        if error.code != NOT_RUN:
            raise
        raise LeftOutError(said.getvalue().strip()) from None
    if not said.getvalue().startswith("ok: "):
        raise ValueError(f"the self-check printed {said.getvalue()!r}, expected 'ok: …'")
    return {"said": said.getvalue().strip()}


def _random(kind: str, number: int) -> Row:
    reshard, offset = (cases.drawn if kind == "random" else cases.fuzzed)(number)
    module = cases.emitted(reshard, f"{kind}_{number}")
    case = case_of(reshard)
    said = {"dtype": case.dtype, "shape": list(case.shape)}
    return said | check_values(module, case, number, few=number % 4 == 0, offset=offset)


def _product(side: str, extents: tuple[int, int, int], dtype: str) -> Row:
    name = "_".join(map(str, (side, *extents, dtype)))
    module = products.emitted_matmul(name, extents, 4, side, dtype)
    given = [products.operands(module, seed) for seed in range(3)]
    rows = [
        products.check_product(module, whole, module.matmul_local(*shards))
        for whole, shards in given
    ]
    return rows[-1]


def jobs() -> Iterator[Job]:
    for bundle in cases.bundles():
        yield bundle.name, partial(_bundle, bundle)
    for name in (*cases.descriptions("shape"), *cases.descriptions("lhs")):
        yield f"{name}, self-check", partial(self_check, name)
    for dtype in ("bfloat16", "float32", "float16"):
        for side, extents in PRODUCTS:
            said = " x ".join(map(str, extents))
            yield f"matmul {side} {said} {dtype}", partial(_product, side, extents, dtype)
    for number in range(GROUPS if RANDOM else 0):
        yield f"group_{number}", partial(groups.check_group, number)
    many = RANDOM * 3 // 5
    for number in range(many):
        yield f"random_{number}", partial(_random, "random", number)
    for number in cases.fuzz_numbers(RANDOM - many):
        yield f"fuzz_{number}", partial(_random, "fuzz", number)
