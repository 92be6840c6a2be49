"""All planted faults that change data, by name."""

from __future__ import annotations

from .fault import Fault
from .of_jax import JAX
from .of_pallas import PALLAS
from .of_torch import TORCH

FAULTS: dict[str, Fault] = {**TORCH, **JAX, **PALLAS}
