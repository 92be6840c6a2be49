"""The reshards to check: bundles of `generated/`, random reshards, and cases of the fuzzer."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import shardwright as sw
from bench.gpu_check.home import DRY, MOST, torch
from bench.parts.attempt import LeftOutError
from bench.reshards import random_mesh, random_sharding

# Not imported as `tests.fuzz`: Python might find an installed package named `tests`.
sys.path.append(str(Path(__file__).parents[2] / "tests"))
from fuzz.generate import case_of as fuzz_case

DTYPES = (
    *("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "int16", "uint16", "float16"),
    *("bfloat16", "int32", "uint32", "float32", "int64", "float64"),
)
GENERATED = Path("generated")
"""The folder of the bundles, relative to the current folder."""


@dataclass(frozen=True)
class Bundle:
    """A reshard of `generated/` that has a Triton module."""

    name: str
    reshard: sw.Reshard

    @property
    def bytes(self) -> int:
        """The bytes of the tensor or, for a partial sum, of one term."""
        return math.prod(self.reshard.shape) * int(getattr(torch, self.reshard.dtype).itemsize)

    def module(self) -> ModuleType:
        """Import and return the module. Raises LeftOutError if the tensor is too large to move."""
        if self.bytes > MOST:
            raise LeftOutError("the tensor is too large to move here")
        return importlib.import_module(f"generated.{self.name}.triton_gpu")


def descriptions(key: str) -> dict[str, dict[str, Any]]:
    """Return, by name, the descriptions of bundles with a Triton module that have the key `key`:
    "shape" for reshards, "lhs" for matmuls."""
    manifest = json.loads((GENERATED / "manifest.json").read_text())
    return {
        name: each["description"]
        for name, each in manifest["bundles"].items()
        if "triton_gpu.py" in each["files"] and key in each["description"]
    }


def bundles() -> list[Bundle]:
    """Return the reshards of `generated/` that have a Triton module."""
    return [Bundle(name, _described(said)) for name, said in descriptions("shape").items()]


def _described(said: dict[str, Any]) -> sw.Reshard:
    keys = ("shape", "dtype", "source", "target", "source_split", "target_split")
    meshes = {"mesh": said["mesh"], "target_mesh": said.get("target_mesh")}
    return sw.Reshard(*(said[key] for key in keys), **meshes)


def drawn(seed: int) -> tuple[sw.Reshard, int]:
    """Return a random reshard with realistic extents, and how far its shards are from an aligned
    address, in elements. About one in five reshards is a sum."""
    rng, dtype = random.Random(f"gpu{seed}"), DTYPES[seed % len(DTYPES)]
    rank, mesh = rng.randint(1, 4), random_mesh(rng)
    sides = [str(random_sharding(rng, mesh, rank)) for _ in range(2)]
    shape = _shape(rng, rank)
    axis = f'"{mesh.axes[0][0]}"'
    if seed % 5 == 4 and dtype != "bool" and f"{axis}:" not in sides[0]:
        without = sides[0].replace(f"{axis}, ", "").replace(f", {axis}", "").replace(axis, "")
        sides[0] = f"{without}, unreduced={{{axis}}}"
    splits = [rng.choice(["flat", "flat", "nested"]) for _ in range(2)]
    return sw.Reshard(shape, dtype, *sides, *splits, mesh=mesh), rng.choice([0, 0, 1, 3])


def _shape(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Return random extents whose product is about 2 to the power of a random number."""
    power = rng.uniform(6, 10 if DRY else 22)
    cuts = [0.0, *sorted(rng.random() for _ in range(rank - 1)), 1.0]
    widths = (high - low for low, high in itertools.pairwise(cuts))
    return tuple(max(1, round(2 ** (power * width))) for width in widths)


def fuzzed(number: int) -> tuple[sw.Reshard, int]:
    """Return a small reshard of the fuzzer (any meshes, any device order, sub-axes, rank 0 to 4),
    and how far its shards are from an aligned address, in elements."""
    case = fuzz_case(number)
    sides = case.source, case.target
    texts, splits = (s.sharding for s in sides), (s.split for s in sides)
    meshes = {"mesh": sides[0].mesh, "target_mesh": sides[1].mesh}
    reshard = sw.Reshard(case.shape, case.dtype, *texts, *splits, **meshes)
    return reshard, getattr(case.use, "offset", 0)


def fuzz_numbers(count: int) -> list[int]:
    """Return the numbers of the fuzzer's first `count` cases with a Triton module."""
    return [n for n in range(5 * count) if n % 5 in (1, 3)][:count]


_FOLDER = tempfile.TemporaryDirectory()
FEATURES = ("async", "dtensor", "remembered", "symmetric")
"""The features with which modules of reshards are checked. Matmuls have none of these features."""
ROOT = Path(_FOLDER.name) / "checked"
"""The package into which a process emits its bundles, so that they share support modules."""


def emitted(what: sw.Reshard | sw.Matmul, name: str) -> ModuleType:
    """Emit a Triton module, import it and return it."""
    features = FEATURES if isinstance(what, sw.Reshard) else ()
    sw.emit(what, backends=("triton_gpu",), features=features).write(ROOT / name)
    return imported(name)


def imported(name: str) -> ModuleType:
    """Import and return the Triton module of an emitted bundle."""
    if str(ROOT.parent) not in sys.path:
        sys.path.append(str(ROOT.parent))
    importlib.invalidate_caches()
    return importlib.import_module(f"{ROOT.name}.{name}.triton_gpu")
