"""Move whole models in one call: `sw.sync(model, source, target)`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError, check_type, known_arguments
from shardwright.ir.foreign import JAX_ARRAY, TORCH_TENSOR, is_a
from shardwright.ir.model import MEMORY_LIMIT, Model, flattened, nested
from shardwright.ir.model_moves import Arrays, moved
from shardwright.ir.model_plan import ModelPlan, plan_model
from shardwright.ir.model_proof import ModelProof, prove
from shardwright.ir.rules import Rules

TORCH_OPTIONS = ("group", "out", "progress", "timeout", "digest")
JAX_OPTIONS = ("devices", "progress", "digest")


@dataclass(frozen=True, repr=False)
class Sync(Drawn):
    """How a model moves from one side to another: the plan, its proof and its runtime.

    `print` shows the moves and the facts proved about them.
    """

    plan: ModelPlan
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def proof(self) -> ModelProof:
        """The proof that every target element is written once, from its own source element."""
        return prove(self.plan)

    def __call__(self, state: Any, **options: Any) -> Any:
        """Return this process's target buffers, given its source buffers.

        `state`: source buffers by name, possibly in nested dicts, lists and tuples. With torch
        tensors, every process of the group must make the call; a process without buffers passes
        None. JAX arrays must be sharded as in `source_shardings`. The result is nested like `state`
        if its buffers have the same names; otherwise it is a dict by name, nested where `state` is.
        `options`: `group`, `out`, `progress`, `timeout` and `digest` with torch; `devices`,
        `progress` and `digest` with JAX (docs/models.md). Raises InputError for an unsuitable
        state, and ValueError for wrong names, shapes or dtypes.
        """
        flat = {} if state is None else flattened(state)
        first = next((each for each in flat.values() if each is not None), None)
        of_jax = is_a(first, JAX_ARRAY)
        known = JAX_OPTIONS if of_jax else TORCH_OPTIONS
        if unknown := [name for name in options if name not in known]:
            raise InputError(
                f"a call with {'JAX arrays' if of_jax else 'torch tensors'} has no such option",
                got=", ".join(unknown),
                expected=", ".join(known),
            )
        if first is None and not _in_process_group():
            raise InputError(
                "the state holds no tensor",
                argument="state",
                got=repr(state),
                expected="JAX arrays by name; None only in a process of a torch process group",
            )
        if of_jax:
            _check_devices(options.get("devices"))
            return nested(self._runtime("jax_model")(flat, **options), state)
        if first is not None and not is_a(first, TORCH_TENSOR):
            raise InputError(
                "a state must hold torch tensors or JAX arrays",
                argument=f"state, {next(name for name, each in flat.items() if each is first)}",
                got=f"{type(first).__module__}.{type(first).__name__}",
                expected="a dict of tensors by name; Sync.local moves numpy arrays",
            )
        return nested(self._runtime("torch_model")(flat, **options), state)

    def source_shardings(self, devices: Any = None) -> dict[str, Any]:
        """Return the shape, dtype and sharding that a call expects of each source buffer in JAX, by
        name.

        Each device stores its part as the layout says, padded to the largest part. `devices`: the
        devices with the ids of both sides, in ascending order; by default JAX's first devices.
        """
        _check_devices(devices)
        return dict(self._runtime("jax_model").source_shardings(devices))

    def _runtime(self, name: str) -> Any:
        if name not in self._made:
            support = importlib.import_module(f"shardwright.templates.support.{name}")
            self._made[name] = support.Weights(self.data)
        return self._made[name]

    @property
    def data(self) -> dict[str, Any]:
        """All data that a runtime needs, as JSON types."""
        return self.plan.data

    def local(self, shards: Arrays) -> dict[int, dict[str, Any]]:
        """Return the target buffers of all devices, by device id and name, from source buffers.

        `shards`: by device id and name, numpy arrays of the tensor's dtype, or of integers with its
        bits. Elements move within this process as planned; padding of the results is zero. Raises
        InputError for a buffer that is missing or has a wrong shape or dtype.
        """
        return moved(self.plan.data, shards)

    @property
    def pictured(self) -> ModelPlan:
        """The plan, which is drawn as the picture of this object."""
        return self.plan

    def __repr__(self) -> str:
        return f"<Sync: {self.plan!r}>"

    def __str__(self) -> str:
        return f"{self.plan}\n{self.proof}"


def _in_process_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and bool(distributed.is_initialized())


def _check_devices(devices: object) -> None:
    if devices is not None:
        check_type(devices, Iterable, "a list of JAX devices, such as jax.devices()[:8]", "devices")


@known_arguments
def sync(model: Model, source: object, target: object, *, memory_limit: int = MEMORY_LIMIT) -> Sync:
    """Return an object that moves a model from a source to a target.

    `source`, `target`: `sw.Rules`, or a `sw.Stored` of all the model's tensors, as learned. Both
    may be on any devices. `memory_limit`: bytes of messages in flight on any device, 1 GiB by
    default. Raises InputError for rules and layouts that do not fit the model, and for a limit that
    is too small.
    """
    check_type(model, Model, 'sw.Model({"wq": (64, 64)}, "bfloat16")', "model")
    return Sync(plan_model(model, source, target, memory_limit=memory_limit))


def exchange(
    names: Sequence[str],
    tensors: Sequence[tuple[Any, Any]],
    source: Sequence[Any],
    target: Sequence[Any],
) -> tuple[Sync, list[str]]:
    """Return an object that moves several tensors at once, and the names that it uses for them.
    These are `names`, except that names with characters other than letters, digits, underscores and
    points are numbered; if names clash, all are numbered.

    `tensors`: their shapes and dtypes; `source`, `target`: the sharding and mesh of each tensor.
    """
    plain = [
        name if re.fullmatch(r"\w[\w.]*", name) else f"leaf {n}" for n, name in enumerate(names)
    ]
    called = plain if len({*plain}) == len(plain) else [f"leaf {n}" for n in range(len(plain))]
    pairs = zip(called, tensors, strict=True)
    model = Model({name: {"shape": shape, "dtype": dtype} for name, (shape, dtype) in pairs})
    sides = []
    for side in (source, target):
        rules = {
            name: {"layout": sharding, "mesh": mesh}
            for name, (sharding, mesh) in zip(called, side, strict=True)
        }
        sides.append(Rules(side[0][1], rules))
    return sync(model, *sides), called
