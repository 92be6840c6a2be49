"""The modules of a bundle: one for each backend and, beside one that has derivatives, its backward.

The derivative of a reshard is the reshard itself, and its transpose the reverse reshard: from the
target to the source. Padding fits: what is read of a cotangent is not padding, and the padding of
what is returned is zero, as the cotangent of elements that are never read has to be. The derivative
of a sum gives its cotangent to every term, that of a value which becomes one term of a sum is the
cotangent of that term. A maximum or minimum of terms has no derivative where they are equal: its
module has none and says so.
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
    forms = {part.file: part.plan for part in like}
    file = f"{backend}.py"
    own = Part(file, plan, _text(backend, plan, command, forms.get(file)))
    back = backward_of(plan, backend)
    if back is None:
        return (own,)
    file = backward_file(backend)
    by = f"{command}  # {file}, the backward"
    return own, Part(file, back, _backward_text(backend, back, by, forms.get(file)))


def _text(backend: str, plan: Plan, command: str, like: Plan | None) -> str:
    from shardwright.codegen.backends.registry import BACKENDS

    module = BACKENDS[backend]
    text: str
    if like is not None and hasattr(module, "render_like"):
        text = module.render_like(plan, command, like)
    else:
        text = module.render(plan, command)
    return text


def _backward_text(backend: str, back: Plan, command: str, like: Plan | None) -> str:
    from shardwright.codegen.backends.registry import BACKENDS

    module = BACKENDS[backend]
    text: str
    if like is None and hasattr(module, "render_backward"):
        text = module.render_backward(back, command)
    else:
        text = _text(backend, back, command, like)
    return text


def backward_file(backend: str) -> str:
    """The name of the file in which the module of a backend looks for its backward."""
    return f"{backend}_backward.py"


def backward_of(plan: Plan, backend: str) -> Plan | None:
    """What moves cotangents back, a plan of the reverse reshard; None where there is no derivative,
    or where the backend, which takes the plan, refuses the reverse."""
    from shardwright.codegen.backends.registry import BACKENDS

    reshard = plan.reshard
    if backend not in DIFFERENTIABLE or not is_floating(reshard.dtype):
        return None
    adds = reshard.adds and reshard.source.operator != "sum"
    places = reshard.places and reshard.target.operator != "sum"
    if adds or places:
        return None
    try:
        back = _planned_back(plan)
        BACKENDS[backend].refuse(back)
    except InputError:
        return None
    return back


def _planned_back(plan: Plan) -> Plan:
    """The reverse of a plan, by the same strategy and model where they do it."""
    from shardwright.codegen.planner import plan as plan_of

    back, chosen = reverse(plan.reshard), plan.prediction
    topology = None if chosen is None else chosen.topology
    if plan.strategy == "direct" or chosen is None:
        return plan_of(back, "direct", topology=topology)
    limit = chosen.memory_bytes
    try:
        return plan_of(back, plan.strategy, topology=topology, memory_limit=limit)
    except InputError:
        return plan_of(back, "direct", topology=topology)


def reverse(reshard: Reshard) -> Reshard:
    """The reshard from the target to the source; its transpose where there are terms."""
    return replace(
        reshard,
        source=reshard.target,
        target=reshard.source,
        source_split=reshard.target_split,
        target_split=reshard.source_split,
        transposed=bool(reshard.fate.reduced or reshard.fate.new) and not reshard.transposed,
    )
