"""Matmuls for tests: shardings of small matrices, and their modules, emitted and run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import running

import shardwright as sw
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.operations.verify import Report
from shardwright.codegen.text.support import support_files
from shardwright.ir.matmul_plan import MatmulPlan

DTYPES = ("float32", "bfloat16", "float16", "int8", "int32", "uint8", "float8_e4m3fn")


def matrix_shardings(axes: Sequence[str]) -> list[str]:
    """Return all shardings of a matrix over axes, each at one dimension, in every order, or at
    none."""
    found = []
    for count in range(len(axes) + 1):
        for chosen in itertools.permutations(axes, count):
            for cut in range(count + 1):
                parts = (chosen[:cut], chosen[cut:])
                dims = ("{" + ", ".join(f'"{axis}"' for axis in part) + "}" for part in parts)
                found.append(f"[{', '.join(dims)}]")
    return sorted(set(found))


def random_matmul(rng: random.Random, batch: int = 0, dtypes: Sequence[str] = DTYPES) -> sw.Matmul:
    """Return a matmul of small tensors with so many batch dimensions, some sides unreduced."""
    mesh = sw.Mesh(rng.choice([{"x": 2, "y": 2}, {"x": 2, "y": 3}, {"x": 4, "y": 2}, {"x": 6}]))
    extents = [rng.choice((1, 2, 3, 4, 6, 7, 8, 12)) for _ in range(batch + 3)]
    i, j, k = extents[batch:]
    lead = tuple(extents[:batch])
    shapes = ((*lead, i, j), (*lead, j, k), (*lead, i, k))
    lhs, rhs, out = (random_sharding(rng, mesh, batch + 2) for _ in shapes)
    dtype = rng.choice(dtypes)
    return sw.Matmul(dtype, (shapes[0], lhs), (shapes[1], rhs), out, mesh=mesh)


def random_sharding(rng: random.Random, mesh: sw.Mesh, rank: int) -> str:
    """Return a sharding whose dimensions have axes, or sub-axes, in any order."""
    refs = []
    for name, size in mesh.axes:
        if size > 3 and rng.random() < 0.3:
            refs += [f'"{name}":(1)2', f'"{name}":(2){size // 2}']
        else:
            refs.append(f'"{name}"')
    rng.shuffle(refs)
    dims: list[list[str]] = [[] for _ in range(rank)]
    unreduced = []
    for ref in refs:
        place = rng.randrange(rank + 2)
        if place < rank:
            dims[place].append(ref)
        elif place == rank and rng.random() < 0.5:
            unreduced.append(ref)
    text = ", ".join("{" + ", ".join(dim) + "}" for dim in dims)
    return f"[{text}]" + (f", unreduced={{{', '.join(unreduced)}}}" if unreduced else "")


def write_module(
    plan: MatmulPlan, name: str, root: Path, *, gradient: bool = False, backend: str = "jax_xla"
) -> MatmulCase:
    """Write the module of a plan below a root, with what it imports, those of its gradients too
    where these are asked for; return the case of it."""
    support = root / "_support"
    if not support.is_dir():
        support.mkdir(parents=True)
        for file, text in support_files([backend], multiplied=True).items():
            (support / file).write_text(text)
    home = root / name
    home.mkdir()
    module = home / f"{backend}.py"
    bundle = sw.emit(plan, backends=(backend,), gradient=gradient)
    for file, text in bundle.modules("as a test").items():
        (home / file).write_text(text)
    return replace(MatmulCase.of(plan.matmul, name, backend, module), derivative=gradient)


def verified(
    matmuls: Iterable[sw.Matmul],
    root: Path,
    loop: str = "never",
    topology: str | None = None,
    *,
    gradient: bool = False,
    backend: str = "jax_xla",
) -> Iterator[tuple[sw.Matmul, MatmulPlan, Report]]:
    """Yield matmuls with their plans and what is wrong with their modules."""
    for number, matmul in enumerate(matmuls):
        plan = plan_matmul(matmul, topology, loop=loop, listed=0)
        case = write_module(plan, f"m{number}", root, gradient=gradient, backend=backend)
        yield matmul, plan, *running.reports_of(backend, [case])
