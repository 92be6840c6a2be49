"""Verify the module of a matmul: run it or, if it is too large, run a smaller twin.

A twin's extents are congruent to the matmul's modulo all numbers of parts, and the twin is
multiplied in the same sharding. The twin is run in full. The module itself is compared with a new
emission, and its index functions with the oracle at full size.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from shardwright.codegen.checks.case import MAX_DEVICES
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.report import Report
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.emit.matmul import MatmulBundle, emit_described_matmul
from shardwright.codegen.operations.verify.pool import Runner, failure
from shardwright.codegen.operations.verify.single import support_fault, write_support
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Matmul
from shardwright.ir.matmul_plan import MatmulPlan

MOST_FLOPS = 1 << 26
MOST_ELEMENTS = 1 << 18
"""The most operations, and the most elements of a tensor, to run: larger products take too long on
a CPU and in the oracle."""


def report_matmul(
    description: MatmulDescription, module: Path, runner: Runner, folder: Path
) -> Report:
    """Return the verdict on a module. A twin's module may be written into `folder`."""
    backend = module.stem
    case = MatmulCase.of(description.matmul(), description.name, backend, module)
    case = dataclasses.replace(case, derivative=description.gradient)
    fault = support_fault(description, module.parent.parent)
    if fault:
        return failure(case, fault)
    if _is_small(description.matmul()) and len(case.devices()) <= MAX_DEVICES:
        return runner.run(case)
    try:
        return _with_twin(description, case, runner, folder)
    except InputError as error:
        return failure(case, f"would not be emitted now: {str(error).splitlines()[0]}")


def _is_small(matmul: Matmul) -> bool:
    sizes = (math.prod(matmul.shape(side)) for side in SIDES)
    return matmul.flops <= MOST_FLOPS and max(sizes) <= MOST_ELEMENTS


def _with_twin(
    description: MatmulDescription, case: MatmulCase, runner: Runner, folder: Path
) -> Report:
    bundle = emit_described_matmul(description)
    full = runner.run(dataclasses.replace(case, execute=False))
    if full.verdict != "ok":
        return full
    for file, text in bundle.modules(description.command()).items():
        if case.module.with_name(file).read_text(encoding="utf-8") != text:
            return failure(case, "differs from a new emission: see `shardwright check`")
    checked = f"at full size: {', '.join((*full.checks, 'text'))}"
    if len(case.devices()) > MAX_DEVICES:
        detail = f"not run: more than {MAX_DEVICES} devices; {checked}"
        return dataclasses.replace(full, verdict="skipped", detail=detail)
    small = twin(bundle.plan)
    result = runner.run(_twin_case(description, small, case, folder))
    shapes = " by ".join("x".join(map(str, small.matmul.shape(side))) for side in SIDES[:2])
    if result.verdict != "ok":
        return dataclasses.replace(result, detail=f"twin {shapes}: {result.detail}")
    checks = tuple(dict.fromkeys((*full.checks, "text", *result.checks)))
    seconds = full.seconds + result.seconds
    return dataclasses.replace(
        result, detail=f"twin {shapes}; {checked}", checks=checks, seconds=seconds
    )


def _twin_case(
    description: MatmulDescription, small: MatmulPlan, case: MatmulCase, folder: Path
) -> MatmulCase:
    home = folder / case.backend / case.name
    home.mkdir(parents=True, exist_ok=True)
    write_support(folder / case.backend, description.supported, case.module.parent.parent)
    made = MatmulBundle(
        small,
        (case.backend,),
        gradient=description.gradient,
        single_file=description.single_file,
    )
    for file, text in made.modules(description.command()).items():
        (home / file).write_text(text, encoding="utf-8")
    found = MatmulCase.of(small.matmul, case.name, case.backend, home / case.module.name)
    return dataclasses.replace(found, derivative=case.derivative)


def twin(plan: MatmulPlan) -> MatmulPlan:
    """Return the plan of a smaller, equally split matmul that is multiplied in the same
    sharding."""
    matmul = plan.matmul
    extents = [_smaller(plan, factor) for factor in range(len(matmul.extents))]
    lhs, rhs = (
        (tuple(extents[factor] for factor in matmul.factors(side)), matmul.sharding(side))
        for side in SIDES[:2]
    )
    small = Matmul(matmul.dtype, lhs, rhs, matmul.out, matmul.out_dtype)
    found = plan_matmul(small, plan.topology, among=plan.among, like=plan.chosen, listed=0)
    return dataclasses.replace(found, asked=plan.asked)


def _smaller(plan: MatmulPlan, factor: int) -> int:
    """Return a small extent that is congruent to a factor's extent modulo twice every number of
    parts; twice, because a loop may halve parts."""
    matmul, product = plan.matmul, plan.chosen.multiplication
    size = matmul.mesh.full_size
    counts = [math.prod(map(size, product.axes[factor]))]
    for side in SIDES:
        if factor in matmul.factors(side):
            dim = matmul.sharding(side).dims[matmul.factors(side).index(factor)]
            counts.append(math.prod(map(size, dim.axes)))
    period, extent = 2 * math.lcm(*counts), matmul.extents[factor]
    return min(extent, period + extent % period)
