"""The Pallas TPU module: one SPMD kernel in which every device pushes its tiles to the
receivers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.jax_host import (
    HostText,
    facts_of,
    host_text,
    imports_of,
    library_lines,
)
from shardwright.codegen.backends.jax_terms import ends_of
from shardwright.codegen.backends.pallas_tpu.kernel_text import KernelRequest, KernelText
from shardwright.codegen.backends.pallas_tpu.phases import TwoKernels, exchanges_of, forms_of
from shardwright.codegen.backends.pallas_tpu.ring import RingForm, ring_facts
from shardwright.codegen.backends.pallas_tpu.ring_text import ring_text
from shardwright.codegen.backends.pallas_tpu.routed.grid import refuse_unreached
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, form_facts, grid_of
from shardwright.codegen.backends.pallas_tpu.terms import (
    PLAIN,
    TermsText,
    has_terms,
    keeps_some,
    moved,
    terms_text,
)
from shardwright.codegen.backends.pallas_tpu.timeline import rings_of
from shardwright.codegen.moves.reduce import reduced_like
from shardwright.codegen.text.context import (
    ModuleText,
    Said,
    check_ascii,
    refuse_common,
    text_of,
)
from shardwright.codegen.text.docstring import title
from shardwright.codegen.text.index_functions import box_functions
from shardwright.codegen.text.support import version
from shardwright.codegen.text.templates import render as render_template
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError
from shardwright.ir.plan import Plan, SteppedPlan, direct_of

NAME = "pallas_tpu"
UNSUPPORTED = {"float64": "a TPU has no 64-bit floats"}
INTEGERS = {"digits_of", "far_apart", "is_full", "maximum", "minimum"}
"""The functions that kernels import from `pallas_integers`. They import all others from
`pallas_peers`."""


@dataclass(frozen=True)
class PallasText:
    """The context of the module template. `moves`: the lines of the constants that describe
    transfers; `kernels`: the lines of the functions that follow them."""

    backend: str
    support: str
    module: ModuleText
    host: HostText
    libraries: tuple[str, ...]
    support_lines: tuple[str, ...]
    wire_bytes: int
    constants: tuple[str, ...]
    functions: tuple[tuple[str, ...], ...]
    moves: tuple[str, ...]
    kernels: tuple[tuple[str, ...], ...]
    host_lines: tuple[str, ...]

    @property
    def threads(self) -> int:
        """The number of CPU devices that the self-check asks JAX for."""
        return self.host.devices + 1

    @property
    def has_doors(self) -> bool:
        """Whether the module tells callers how to add the feature "start", because its functions
        were not emitted."""
        return not self.host.starts


def refuse(plan: Plan) -> None:
    """Raise InputError for a reshard that this backend does not support."""
    refuse_common(plan, NAME, UNSUPPORTED)
    check_ascii(plan.reshard)
    _refuse_orders(plan)
    for each in exchanges_of(plan):
        refuse_wide(plan, moved(each), NAME)
        grid = each.once(grid_of)
        if grid is not None:
            refuse_unreached(grid, each)


def _refuse_orders(plan: Plan) -> None:
    """Raise InputError for a plan of two exchanges between meshes with different device orders: one
    program contains both exchanges and has a single device order."""
    source, target = plan.reshard.source.mesh, plan.reshard.target.mesh
    if isinstance(plan, SteppedPlan) and tuple(source.device_ids) != tuple(target.device_ids):
        raise InputError(
            f"{NAME} reduces in two exchanges only if meshes have the same device order",
            argument="target_mesh",
            got=str(target),
            expected=f'a plan of one exchange, as sw.plan(…, backends=("{NAME}",)) makes it',
        )


def render(request: Request) -> str:
    """Return the text of a module. With `request.like`, use the kernel forms of that plan's module
    where possible."""
    like = request.like
    plan = request.plan if like is None else reduced_like(request.plan, like)
    request, forms = replace(request, plan=plan), forms_of(plan, like)
    ring = rings_of(plan, like) if plan.reshard.adds else None
    if isinstance(plan, SteppedPlan):
        context = _of_two(request, TwoKernels(plan, forms, ring))
    elif ring is not None:
        context = _of_ring(request, ring)
    else:
        return printed(request, forms[0])
    return render_template("common/jax_module.py.jinja", context)


def printed(request: Request, choice: FormChoice) -> str:
    """Return the text of a module with one kernel of the chosen form."""
    return render_template("common/jax_module.py.jinja", _of_one(request, choice))


def lacks(plan: Plan) -> tuple[str, ...]:
    """Return the features that a plan's module cannot have. A reshard that reduces has no "start",
    because the terms are reduced after the exchange. Nor has a reshard of 64-bit elements, because
    they move as two successive halves."""
    is_sum = isinstance(plan, SteppedPlan) or bool(has_terms(plan))
    return ("start",) if is_sum or DTYPES[plan.reshard.dtype] == 8 else ()


def _of_one(request: Request, choice: FormChoice) -> PallasText:
    plan = direct_of(request.plan)
    exchange, reach = moved(plan), plan.once(grid_of) is not None
    facts = form_facts(choice, plan.exchange.terms)
    said = Said(title(plan), (*facts_of(plan), "", *facts))
    terms = TermsText(plan) if has_terms(plan) else None
    held = ends_of(plan) if terms else plan.exchange
    boxes = text_of(plan, request.command, PALLAS, (), said, held)
    starts = "start" in request.features and "start" not in lacks(plan)
    host = replace(host_text(plan, boxes), starts=starts)
    if terms:
        host = replace(host_text(plan, boxes, held), some_local=keeps_some(exchange))
    ends = terms.ends if terms else PLAIN
    text = choice.form.text(KernelRequest(exchange, host, reach, ends))
    if terms:
        functions, made = terms.with_boxes(text.functions), tuple(terms.made(text.made))
        moves = (*terms.side_lines, *text.moves)
        calls = {**text.calls, "pallas_terms": ("ReducedTerms", "Stacked")}
        text = replace(text, functions=functions, made=made, moves=moves, calls=calls)
    module = text_of(plan, request.command, PALLAS, text.functions, said, held)
    ids = (_id_line(request),) if host.communicates else ()
    return _assembled(request, module, host, text, choice.figures.wire_max, ids)


def _of_ring(request: Request, ring: RingForm) -> PallasText:
    plan, held = ring.plan, ends_of(ring.plan)
    said = Said(title(plan), (*facts_of(plan, combines=False), "", *ring_facts(ring)))
    module = text_of(plan, request.command, PALLAS, box_functions(held), said, held)
    host, reach = host_text(plan, module, held), plan.once(grid_of) is not None
    text = ring_text(ring, "_PROGRAM", terms_text(plan), host.program_axes, reach=reach)
    return _assembled(request, module, host, text, ring.wire_bytes, (_id_line(request),))


def _of_two(request: Request, both: TwoKernels) -> PallasText:
    plan, held = both.plan, ends_of(both.plan)
    said = Said(title(plan), both.facts)
    host = host_text(plan, text_of(plan, request.command, PALLAS, (), said, held), held)
    reach = both.halves[0].once(grid_of) is not None
    first, second = texts = both.texts(host, reach)
    calls = both.classes
    for name, names in (*first.calls.items(), *second.calls.items()):
        calls[name] = (*calls.get(name, ()), *names)
    text = KernelText(
        functions=both.functions(texts),
        calls=calls,
        libraries=first.libraries | second.libraries,
        made=tuple(both.made(texts)),
        moves=(*both.side_lines, *first.moves, *second.moves),
        kernels=(*first.kernels, *second.kernels),
        positions=(*first.positions, *second.positions),
    )
    module = text_of(plan, request.command, PALLAS, text.functions, said, held)
    ids = _id_line(request), both.id_line
    return _assembled(request, module, host, text, both.wire_bytes, ids)


def _id_line(request: Request) -> str:
    return f"COLLECTIVE_ID = {request.collective_id}"


def _assembled(
    request: Request,
    module: ModuleText,
    host: HostText,
    text: KernelText,
    wire_bytes: int,
    ids: tuple[str, ...],
) -> PallasText:
    host = replace(host, starts=host.starts and text.halves, buffers=request.buffers)
    calls = {name: {*names} for name, names in text.calls.items() if names}
    calls |= {name: {*names} for name, names in host.calls(request).items()}
    calls["jax_meshes"] = {"Sharded"}
    if {"pallas_terms", "pallas_ring"} & calls.keys():
        calls["jax_terms"] = {"Terms"}
    names = calls.pop("pallas_peers", set()) | {*module.calls}
    calls["pallas_integers"], calls["pallas_peers"] = names & INTEGERS, names - INTEGERS
    return PallasText(
        backend=NAME,
        support=version(NAME),
        module=module,
        host=host,
        libraries=library_lines(text.libraries),
        support_lines=imports_of({name: names for name, names in calls.items() if names}),
        wire_bytes=wire_bytes,
        constants=ids,
        functions=text.positions,
        moves=(*host.side_lines, *text.moves),
        kernels=text.kernels,
        host_lines=(*text.made, *host.host_lines(request, NAME)),
    )
