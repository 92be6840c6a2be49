"""The Pallas TPU module: one SPMD kernel in which every device pushes its tiles to receivers."""

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
from shardwright.codegen.backends.pallas_tpu.program import kernel_text
from shardwright.codegen.backends.pallas_tpu.proofs import check
from shardwright.codegen.backends.pallas_tpu.routed.grid import refuse_unreached
from shardwright.codegen.backends.pallas_tpu.strategy import (
    Form,
    FormChoice,
    cheapest,
    choices,
    form_facts,
    grid_of,
)
from shardwright.codegen.backends.pallas_tpu.terms import (
    PLAIN,
    TermsText,
    has_terms,
    keeps_some,
    moved,
)
from shardwright.codegen.emit.context import (
    ModuleText,
    Said,
    check_ascii,
    refuse_common,
    text_of,
)
from shardwright.codegen.emit.docstring import title
from shardwright.codegen.emit.support import version
from shardwright.codegen.emit.templates import render as render_template
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.errors import InputError
from shardwright.ir.plan import DirectPlan, Plan, SteppedPlan, direct_of

NAME = "pallas_tpu"
UNSUPPORTED = {"float64": "a TPU has no 64-bit floats"}


@dataclass(frozen=True)
class PallasText:
    """Everything the template prints. `moves`: the constants that are what moves; `kernels`: the
    functions after them."""

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
        """The devices that a self-check forces a CPU to have."""
        return self.host.devices + 1


def refuse(plan: Plan) -> None:
    """Raise InputError for what this backend does not do."""
    refuse_common(plan, NAME, UNSUPPORTED)
    check_ascii(plan.reshard)
    if isinstance(plan, SteppedPlan) and plan.strategy == "direct":
        raise InputError(
            "pallas_tpu reduces terms in one exchange",
            argument="strategy",
            got=f"direct, {plan.ops}",
            expected=f'a plan for it, as plan(reshard, backends=("{NAME}",))',
        )
    direct = direct_of(plan)
    refuse_wide(plan, moved(direct), NAME)
    grid = direct.once(grid_of)
    if grid is not None:
        refuse_unreached(grid, direct)


def render(request: Request) -> str:
    """Return the text of a module, in the form that another plan's module has if it can have it."""
    plan = direct_of(request.plan)
    form = None if request.like is None else direct_of(request.like).once(choice_of).form
    choice = plan.once(choice_of) if form is None else checked(plan, form)
    return printed(request, choice)


def printed(request: Request, choice: FormChoice) -> str:
    """Return the text of a module in a form."""
    return render_template("common/jax_module.py.jinja", pallas_text(request, choice))


def choice_of(plan: DirectPlan) -> FormChoice:
    """Return the form of a plan's module, proved right."""
    return checked(plan)


def checked(plan: DirectPlan, like: Form | None = None) -> FormChoice:
    """Return the form of a plan's module, one such as another if it can have it, proved right."""
    choice = cheapest(plan.once(choices), like)
    check(choice.form, moved(plan))
    return choice


def pallas_text(request: Request, choice: FormChoice) -> PallasText:
    """Return the template's context."""
    plan = direct_of(request.plan)
    exchange, reach = moved(plan), plan.once(grid_of) is not None
    facts = form_facts(choice, plan.exchange.terms)
    said = Said(title(plan), (*facts_of(plan), "", *facts))
    terms = TermsText(plan) if has_terms(plan) else None
    held = ends_of(plan) if terms else plan.exchange
    boxes = text_of(plan, request.command, PALLAS, (), said, held)
    host = host_text(plan, boxes)
    if terms:
        host = replace(host_text(plan, boxes, held), some_local=keeps_some(exchange))
    text = kernel_text(exchange, choice.form, host, reach, terms.ends if terms else PLAIN)
    if terms:
        functions, made = terms.with_boxes(text.functions), tuple(terms.made(text.made))
        moves = (*terms.side_lines, *text.moves)
        text = replace(text, functions=functions, made=made, moves=moves)
    module = text_of(plan, request.command, PALLAS, text.functions, said, held)
    calls = {name: {*names} for name, names in text.calls.items() if names}
    calls |= {"jax_host": {host.class_name}, "jax_meshes": {"Sharded"}}
    if terms:
        calls |= {"jax_program": {"Terms"}, "pallas_terms": {"ReducedTerms", "Stacked"}}
    if module.calls:
        calls["pallas_peers"] = {*calls.get("pallas_peers", ()), *module.calls}
    sends = host.communicates
    return PallasText(
        backend=NAME,
        support=version(NAME),
        module=module,
        host=host,
        libraries=library_lines(text.libraries),
        support_lines=imports_of(calls),
        wire_bytes=choice.figures.wire_max,
        constants=(f"COLLECTIVE_ID = {request.collective_id}",) if sends else (),
        functions=text.positions,
        moves=(*host.side_lines, *text.moves),
        kernels=text.kernels,
        host_lines=(*text.made, *host.host_lines(request, NAME)),
    )
