"""The Pallas TPU module: one SPMD kernel in which every device pushes its tiles to receivers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.pallas_tpu.figures import Figures
from shardwright.codegen.backends.pallas_tpu.helpers import Helpers
from shardwright.codegen.backends.pallas_tpu.host import PallasHost as HostText
from shardwright.codegen.backends.pallas_tpu.host import host_text, short_dims
from shardwright.codegen.backends.pallas_tpu.proofs import check
from shardwright.codegen.backends.pallas_tpu.routed.grid import refuse_unreached
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.strategy import (
    Form,
    FormChoice,
    cheapest,
    choices,
    form_facts,
    grid_of,
)
from shardwright.codegen.emit.context import (
    ModuleText,
    as_vectors,
    check_ascii,
    module_text,
    refuse_common,
)
from shardwright.codegen.emit.index_functions import index_functions
from shardwright.codegen.emit.templates import render as render_template
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.plan import DirectPlan, Plan, direct_of

NAME = "pallas_tpu"
# Collective ids are 16-bit signed numbers in the interpreter.
COLLECTIVE_IDS = 2**15
UNSUPPORTED = {"float64": "a TPU has no 64-bit floats"}
# The index functions that no kernel here calls, nor `verify`.
UNUSED = ("source_range",)
TESTED = "Tested with jax 0.10.2 in TPU interpret mode; where the tensor is large, a smaller twin."


@dataclass(frozen=True)
class PallasKernel:
    """The kernels."""

    module: ModuleText
    host: HostText
    view_target_shape: str
    view: str
    inverse_view: str
    form: Form
    helpers: Helpers
    figures: Figures
    collective_id: int
    checks_routes: bool
    target_short: tuple[int, ...]
    source_parts: tuple[int, ...]
    is_kernel: bool = True
    names_axes: bool = False  # among axes that its shardings alone do not name
    settings: str = ", interpret, collective_id"  # arguments after the shard

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules of Python that a module needs."""
        loads_backward = ("importlib.util",) if self.host.differentiable else ()
        warns = ("warnings",) if self.host.communicates and not self.checks_routes else ()
        return ("contextlib", "functools", *loads_backward, "math", "operator", "os", *warns)

    @property
    def order_spec(self) -> str:
        """Where the table stands in memory, before the specs of the shards."""
        return "pl.BlockSpec(memory_space=pltpu.SMEM), " if self.host.has_table else ""

    @property
    def semaphores(self) -> tuple[str, ...]:
        """The DMA semaphores of a kernel that moves tiles in place or slots."""
        local = ("copied",) if self.host.some_local else ()
        return (*local, "sent", "received") if self.host.communicates else local

    @property
    def flat(self) -> bool:
        """Whether the tensor is a vector, which is tiled otherwise than what has rows."""
        return len(self.module.axes) == 1

    @property
    def transposed(self) -> bool:
        """Whether kernels take the dimensions in another order than the tensor's."""
        return self.form.view != self.module.axes

    @property
    def routed(self) -> bool:
        """Whether tiles go from device to device."""
        return isinstance(self.form, Routed)

    @property
    def as_bits(self) -> bool:
        """Whether elements are integers outside of kernels too, which may cost XLA a copy: where it
        packs them, and those that a TPU's kernels have no type for."""
        packed = isinstance(self.form, Slots | Routed)
        return self.host.as_bits and (packed or self.module.dtype == "float16")

    @property
    def as_bits_interpreted(self) -> bool:
        """Whether elements are integers where the kernel is interpreted alone, on CPU."""
        return self.host.as_bits and self.host.changes_nans and not self.as_bits

    @property
    def moved(self) -> str:
        """What elements are moved as."""
        return (
            "int8"
            if self.module.dtype == "bool"
            else self.host.bits
            if self.as_bits
            else self.module.dtype
        )

    @property
    def word(self) -> str:
        """The integer type through which elements become 32-bit words, "self" if they are some."""
        return {4: "self", 2: "int16", 1: "int8"}[min(DTYPES[self.module.dtype], 4)]

    @property
    def unpack_specs(self) -> str:
        """Where the windows' sources stand in memory."""
        return ", ".join("in_hbm" for _ in self.unpack_refs.split(", "))

    @property
    def unpack_refs(self) -> str:
        """Where windows take the parts of the target shard from."""
        local = ("x",) if self.host.some_local else ()
        return ", ".join((*local, "stage") if self.host.communicates else local)

    @property
    def sender_rank(self) -> str:
        """The rank of the device at source position `sender`."""
        return "sender" if self.module.same_order else f"_source_rank(sender{self.host.order_arg})"

    @property
    def receiver_rank(self) -> str:
        """The rank of the device at target position `receiver`."""
        return (
            "receiver" if self.module.same_order else f"_target_rank(receiver{self.host.order_arg})"
        )


@dataclass(frozen=True)
class PallasText:
    """Everything the template prints."""

    module: ModuleText
    host: HostText
    kernel: PallasKernel


def refuse(plan: Plan) -> None:
    """Raise InputError for what this backend does not do."""
    refuse_common(plan, NAME, UNSUPPORTED)
    check_ascii(plan.reshard)
    direct = direct_of(plan)
    refuse_wide(plan, as_vectors(direct.exchange), NAME)
    grid = direct.once(grid_of)
    if grid is not None:
        refuse_unreached(grid, direct)


def render(request: Request) -> str:
    """Return the text of a module, in the form that another plan's module has if it can have it."""
    plan = direct_of(request.plan)
    form = None if request.like is None else direct_of(request.like).once(choice_of).form
    choice = plan.once(choice_of) if form is None else checked(plan, form)
    return printed(plan, request.command, choice)


def printed(plan: DirectPlan, command: str, choice: FormChoice) -> str:
    """Return the text of a module in a form."""
    text = pallas_text(plan, command, choice)
    return render_template(f"{choice.form.template}.py.jinja", text)


def choice_of(plan: DirectPlan) -> FormChoice:
    """Return the form of a plan's module, proved right."""
    return checked(plan)


def checked(plan: DirectPlan, like: Form | None = None) -> FormChoice:
    """Return the form of a plan's module, one such as another if it can have it, proved right."""
    choice = cheapest(plan.once(choices), like)
    check(choice.form, as_vectors(plan.exchange))
    return choice


def pallas_text(plan: DirectPlan, command: str, choice: FormChoice) -> PallasText:
    """Return the template's context."""
    exchange = as_vectors(plan.exchange)
    source, target = exchange.source, exchange.target
    view = choice.form.view
    used = (f for f in exchange.once(index_functions) if f.name not in UNUSED)
    module = module_text(
        plan,
        command,
        PALLAS,
        TESTED,
        functions=(*used, *choice.form.functions(exchange)),
        more=("", *form_facts(choice)),
    )
    host = host_text(plan, module, by_table=True)
    kernel = PallasKernel(
        module=module,
        host=host,
        view_target_shape=repr(tuple(target.local_shape[axis] for axis in view)),
        view=repr(view),
        inverse_view=repr(tuple(view.index(axis) for axis in range(len(view)))),
        form=choice.form,
        helpers=Helpers.of(choice.form, host),
        figures=choice.figures,
        collective_id=collective_id(plan),
        checks_routes=plan.once(grid_of) is not None,
        target_short=short_dims(target) if choice.form.leaves_padding else (),
        source_parts=tuple(dim.parts for dim in source.dims),
    )
    return PallasText(module, host, kernel)


def collective_id(plan: DirectPlan) -> int:
    """Return a number that stays with the description, so that different kernels differ in it."""
    reshard = plan.reshard
    described: tuple[object, ...] = (
        reshard,
        reshard.source.mesh.device_ids,
        reshard.target.mesh.device_ids,
    )
    if plan.prediction is not None and plan.once(grid_of) is not None:
        described += (plan.prediction.topology,)
    digest = hashlib.sha256(repr(described).encode()).digest()
    return int.from_bytes(digest[:2], "big") % COLLECTIVE_IDS
