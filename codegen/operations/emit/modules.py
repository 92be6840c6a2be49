"""The modules of a bundle: one per backend and, if the reshard has a derivative, its backward
module.

A reshard is linear, so its derivative is the reshard itself. Cotangents are moved by the reverse
reshard, from the target to the source. The reverse reshard reads no padding of a cotangent and
returns zeros in padding, as required for the cotangents of elements that are never read. The
cotangent of a sum is also the cotangent of each term. If a value becomes one term of a sum, its
cotangent is that of the term. A maximum or minimum of equal terms has no derivative, so modules
that reduce by maximum or minimum have no backward module and say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from shardwright.codegen import registry
from shardwright.codegen.backends.base import Request
from shardwright.codegen.moves import plan as plan_of
from shardwright.codegen.spec.description import with_comment
from shardwright.codegen.text.single_file import single_file as joined
from shardwright.codegen.text.support import support_text
from shardwright.ir.dtypes import is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.plan import DirectPlan, Plan
from shardwright.ir.reshard import Reshard


@dataclass(frozen=True)
class Part:
    """One module: its file name, plan and text."""

    file: str
    plan: Plan
    text: str


def parts(
    plan: Plan,
    backend: str,
    command: str,
    like: tuple[Part, ...] = (),
    *,
    gradient: bool = False,
    single_file: bool = False,
    features: tuple[str, ...] = (),
    collective_id: int = 0,
    buffers: tuple[str, str] | None = None,
) -> tuple[Part, ...]:
    """Return the module of a backend, followed by its backward module if it has one. `command`: the
    command that emits both.

    `like`: modules of another plan, whose forms are used if the backend has several; `gradient`,
    `single_file`, `features`: as in a description; `collective_id`: the id of the module (the id of
    its backward module differs in the last bit); `buffers`: the buffer names, for the module of a
    relayout.
    """
    found = _rendered(plan, backend, command, like, gradient, features, collective_id, buffers)
    if not single_file:
        return found
    read = partial(support_text, (backend,))
    return tuple(replace(part, text=joined(part.text, read)) for part in found)


def _rendered(
    plan: Plan,
    backend: str,
    command: str,
    like: tuple[Part, ...],
    gradient: bool,
    features: tuple[str, ...],
    collective_id: int,
    buffers: tuple[str, str] | None,
) -> tuple[Part, ...]:
    forms = {part.file: part.plan for part in like}
    file = f"{backend}.py"
    renders = registry.backend(backend)
    back = backward_of(plan, backend, gradient=gradient)
    asked = Request(plan, command, forms.get(file), derivative=back is not None, features=features)
    asked = replace(asked, collective_id=collective_id, buffers=buffers)
    own = Part(file, plan, renders.render(asked))
    if back is None:
        return (own,)
    file = backward_file(backend)
    by = with_comment(command, f"{file}, the backward")
    asked = Request(back, by, forms.get(file), backward=True, derivative=True, features=features)
    return own, Part(file, back, renders.render(replace(asked, collective_id=collective_id ^ 1)))


def backward_file(backend: str) -> str:
    """Return the file name under which a backend's module looks for its backward module."""
    return f"{backend}_backward.py"


def backward_of(plan: Plan, backend: str, *, gradient: bool = False) -> Plan | None:
    """Return a plan of the reverse reshard, which moves cotangents. Return None if there is no
    derivative, none is requested, or the backend refuses the reverse reshard."""
    reshard, renders = plan.reshard, registry.backend(backend)
    if not renders.differentiable or not is_floating(reshard.dtype):
        return None
    if renders.gradient_on_request and not gradient:
        return None
    if reshard.extremum:
        return None
    try:
        back = plan.once(_planned_back)
        registry.backend(backend).refuse(back)
    except InputError:
        return None
    return back


def _planned_back(plan: Plan) -> Plan:
    back = reverse(plan.reshard)
    if isinstance(plan, DirectPlan):
        topology = None if plan.prediction is None else plan.prediction.topology
        return plan_of(back, "direct", topology=topology)
    topology, limit = plan.prediction.topology, plan.prediction.memory_bytes
    try:
        return plan_of(back, plan.strategy, topology=topology, memory_limit=limit)
    except InputError:
        return plan_of(back, "direct", topology=topology)


def reverse(reshard: Reshard) -> Reshard:
    """Return the reshard from the target to the source or, for partial sums, its transpose."""
    return replace(
        reshard,
        source=reshard.target,
        target=reshard.source,
        source_split=reshard.target_split,
        target_split=reshard.source_split,
        transposed=bool(reshard.fate.reduced or reshard.fate.new) and not reshard.transposed,
    )
