"""The bundles of `generated/` that have a JAX module, on the available devices."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import shardwright as sw
from bench.parts.attempt import LeftOutError
from bench.tpu_check.home import DRY, MOST, count, jax
from shardwright.codegen.checks.case import Case

BACKENDS = ("pallas_tpu", "jax_xla")


@dataclass(frozen=True)
class Bundle:
    """A bundle of one backend, and its description."""

    name: str
    backend: str
    said: dict[str, Any]

    @property
    def case_name(self) -> str:
        """The name of the bundle's rows."""
        return f"{self.name}, {self.backend}"

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of the module's functions other than arrays and meshes."""
        from jax.experimental.pallas import tpu as pltpu

        interpreted = DRY and self.backend == "pallas_tpu"
        return {"interpret": pltpu.InterpretParams()} if interpreted else {}

    def case(self) -> Case:
        """Return the reshard in the oracle's form. Raises LeftOutError if it is too large for this
        machine, or needs more devices."""
        keys = ("shape", "dtype", "source", "target", "source_split", "target_split")
        meshes = {"mesh": self.said["mesh"], "target_mesh": self.said.get("target_mesh")}
        reshard = sw.Reshard(*(self.said[key] for key in keys), **meshes)
        if math.prod(reshard.shape) * np.dtype(jax.numpy.dtype(reshard.dtype)).itemsize > MOST:
            raise LeftOutError("the tensor is too large to move here")
        case = Case.of(reshard, self.name, self.backend, Path())
        enough(case.devices())
        return case

    def module(self) -> ModuleType:
        return importlib.import_module(f"generated.{self.name}.{self.backend}")


def enough(ids: Sequence[int]) -> None:
    """Raise LeftOutError if a bundle needs more devices than there are."""
    if len(ids) > count():
        raise LeftOutError(f"needs more than the {count()} devices here")


def bundles(key: str) -> list[Bundle]:
    """Return the bundles whose descriptions have the key `key`: "shape" for reshards, "lhs" for
    matmuls."""
    manifest = json.loads(Path("generated/manifest.json").read_text())
    return [
        Bundle(name, backend, each["description"])
        for name, each in manifest["bundles"].items()
        for backend in BACKENDS
        if f"{backend}.py" in each["files"] and key in each["description"]
    ]


def mesh_of(axes: Sequence[tuple[str, int]], ids: Sequence[int], every: Sequence[int]) -> Any:
    """Return a mesh in which device i of this machine stands for the i-th id of `every`."""
    devices = np.empty(len(ids), dtype=object)
    for position, device in enumerate(ids):
        devices[position] = jax.devices()[every.index(device)]
    names, sizes = zip(*axes, strict=True)
    return jax.sharding.Mesh(devices.reshape(sizes), names)
