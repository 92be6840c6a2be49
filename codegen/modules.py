"""The modules of a bundle: one for each backend and, beside one that has derivatives, its backward.

The derivative of a reshard is the reshard itself, and its transpose the reverse reshard: from the
target to the source. Padding fits: what is read of a cotangent is not padding, and the padding of
what is returned is zero, as the cotangent of elements that are never read has to be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardwright.ir.dtypes import is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard

DIFFERENTIABLE = ("pallas_tpu", "triton_gpu", "jax_xla")
"""The backends whose modules have derivatives."""


@dataclass(frozen=True)
class Part:
    """One module: its file's name, its plan and its text."""

    file: str
    plan: Plan
    text: str


def parts(plan: Plan, backend: str, command: str, like: tuple[Part, ...] = ()) -> tuple[Part, ...]:
    """The module of a backend and its backward, if it has one; `command` emits both.

    `like`: the modules of another plan whose forms to take, where the backend has several.
    """
    topology = None if plan.prediction is None else plan.prediction.topology
    back = backward_plan(plan.reshard, backend, topology)
    plans = {f"{backend}.py": (plan, command)}
    if back is not None:
        file = backward_file(backend)
        plans[file] = back, f"{command}  # {file}, the backward"
    forms = {part.file: part.plan for part in like}
    return tuple(
        Part(file, each, _text(backend, each, by, forms.get(file), backward=each is back))
        for file, (each, by) in plans.items()
    )


def _text(backend: str, plan: Plan, command: str, like: Plan | None, *, backward: bool) -> str:
    from shardwright.codegen.backends import BACKENDS

    module = BACKENDS[backend]
    text: str
    if like is not None and hasattr(module, "render_like"):
        text = module.render_like(plan, command, like)
    elif backward and hasattr(module, "render_backward"):
        text = module.render_backward(plan, command)
    else:
        text = module.render(plan, command)
    return text


def backward_file(backend: str) -> str:
    """The name of the file in which the module of a backend looks for its backward."""
    return f"{backend}_backward.py"


def backward_plan(reshard: Reshard, backend: str, topology: str | None = None) -> Plan | None:
    """The plan of the backward, which is the reverse reshard; None where there is no derivative,
    or where the backend, which takes the reshard, refuses its reverse."""
    from shardwright.codegen.backends import BACKENDS
    from shardwright.codegen.planner import plan as plan_of

    if backend not in DIFFERENTIABLE or not is_floating(reshard.dtype):
        return None
    try:
        back = plan_of(reverse(reshard), "direct", topology=topology)
        BACKENDS[backend].refuse(back)
    except InputError:
        return None
    return back


def reverse(reshard: Reshard) -> Reshard:
    """The reshard from the target to the source."""
    return replace(
        reshard,
        source=reshard.target,
        target=reshard.source,
        source_split=reshard.target_split,
        target_split=reshard.source_split,
    )
