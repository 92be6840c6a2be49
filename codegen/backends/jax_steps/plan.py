"""The plain JAX module of a basis plan: one block of statements per step.

A tensor of partial sums has an extra first dimension, the terms: one for each position along the
unreduced axes (in mesh order), sharded over these axes. Inside the program, a device has one term
and no such dimension.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.int32 import MAX_INDEX, ROUNDING
from shardwright.codegen.backends.jax_host import (
    LIBRARIES,
    HostText,
    host_text,
    short_dims,
)
from shardwright.codegen.backends.jax_steps.axes import ProgramAxes
from shardwright.codegen.backends.jax_steps.blocks import Blocks, Collectives
from shardwright.codegen.backends.jax_steps.boxes import pairs_of
from shardwright.codegen.backends.jax_steps.docstring import step_facts
from shardwright.codegen.backends.jax_steps.statements import called_by_steps, used_by
from shardwright.codegen.backends.jax_terms import ends_of
from shardwright.codegen.moves.basis.boxed import layouts_of
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.text.context import (
    ModuleText,
    Said,
    as_vectors,
    check_ascii,
    constant_lines,
    text_of,
)
from shardwright.codegen.text.docstring import title
from shardwright.codegen.text.index_functions import box_functions
from shardwright.codegen.text.python_text import INDENT, WIDTH
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.axes import AxisRef, axes_text
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, ids_of, same_devices
from shardwright.ir.plan import Plan, SteppedPlan
from shardwright.ir.sharding import Operator, Sharding
from shardwright.ir.steps import ExchangeStep, Step

# The most boxes of a step, including empty ones, that a module may visit during tracing.
MOST_BOXES = 1 << 18


@dataclass(frozen=True)
class Steps:
    """The blocks of a plan's steps.

    `said`: a description of each step; `wire`: the bytes that the busiest device receives, and that
    all devices receive; `takes_term`, `gives_term`: whether source and target shards have a
    dimension of terms; `axes`: None if the meshes list their devices in different orders; `empty`:
    the value of the constant EMPTY, for missing terms, or None if the module does not use it.
    """

    blocks: tuple[Collectives, ...]
    said: tuple[str, ...]
    wire: tuple[int, int]
    axes: ProgramAxes | None
    takes_term: bool
    gives_term: bool
    empty: str | None

    @property
    def _uses(self) -> frozenset[str]:
        own = used_by([self.empty] if self.empty else ())
        return own.union(*(block.uses for block in self.blocks))

    @property
    def calls(self) -> dict[str, tuple[str, ...]]:
        """The support functions that the module calls, by support module."""
        return called_by_steps(self._uses)

    @property
    def libraries(self) -> frozenset[str]:
        return self._uses & LIBRARIES.keys()

    @property
    def boxes(self) -> bool:
        return any(block.boxes is not None for block in self.blocks)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Commented statements that compute the target shard `y` from the source shard `x`."""
        found = ["x = x[0]"] if self.takes_term else []
        last = len(self.blocks) - 1
        for number, (block, said) in enumerate(zip(self.blocks, self.said, strict=True)):
            found += comment(f"{number + 1}. {said}")
            found += block.lines("y" if number == last else "x")
        return (
            *found,
            *([] if self.blocks else ["y = x"]),
            *(["y = y[None]"] if self.gives_term else []),
        )

    @property
    def constant_lines(self) -> tuple[str, ...]:
        """The lines of the constants for steps that move boxes, and of EMPTY."""
        found: list[str] = []
        if self.empty:
            found += ["# What a term without the value holds, as bits."]
            found += [f"EMPTY = bits_from({self.empty}, DTYPE)"]
        if self.boxes:
            found += ["# Steps by boxes, by their number: see `moved_by_boxes`."]
        for number, block in enumerate(self.blocks, 1):
            if block.boxes is None:
                continue
            for name in ("before", "after", "senders"):
                items = [repr(item) for item in getattr(block.boxes, name)]
                found += constant_lines(f"{name.upper()}_{number}", items)
        return tuple(found)


def steps_of(plan: Plan) -> Steps:
    reshard, operator = plan.reshard, plan.reshard.target.operator
    same_order = same_devices(reshard.source.mesh, reshard.target.mesh)
    axes = ProgramAxes.of(reshard.source, map(_digits, plan.steps)) if same_order else None
    ids = np.sort(ids_of(reshard.source.mesh))
    started = identity(reshard.source.operator, reshard.dtype, as_bits=False)
    # the same condition as `_bits` in `jax_xla/context.py`
    as_bits = not reshard.adds and DTYPES[reshard.dtype] < 4
    empty = identity(operator, reshard.dtype, as_bits)
    make = Blocks(reshard.source.mesh, reshard.dtype, ids, axes, started, empty)
    blocks = tuple(make.of(number, step) for number, step in enumerate(plan.steps, 1))
    uses_empty = any("EMPTY" in block.uses for block in blocks)
    received = sum((block.received for block in blocks), np.zeros(ids.size, dtype=np.int64))
    return Steps(
        blocks,
        tuple(said_of(plan, step) for step in plan.steps),
        (int(received.max()), int(received.sum())),
        axes,
        bool(reshard.source.unreduced),
        bool(reshard.target.unreduced),
        identity(operator, reshard.dtype, as_bits=False) if uses_empty else None,
    )


def identity(operator: Operator, dtype: str, as_bits: bool) -> str:
    """Return the neutral element of an operator. `as_bits`: whether elements are viewed as integers
    of the dtype's width; the neutral element of a float dtype is then the constant EMPTY."""
    if operator == "sum":
        return "0"
    lowest = operator == "max"
    if dtype == "bool":
        return str(not lowest)
    if not is_floating(dtype):
        end = f"jnp.iinfo(DTYPE).{'min' if lowest else 'max'}"
        if dtype in ("uint32", "uint64") and not lowest:  # too large for JAX's default integers
            end = f"jnp.dtype(DTYPE).type({end})"
        return end
    if as_bits:
        return "EMPTY"
    if dtype == "float8_e4m3fn":  # the type has no infinity
        return f"jnp.finfo(DTYPE).{'min' if lowest else 'max'}"
    return "-jnp.inf" if lowest else "jnp.inf"


def _digits(step: Step) -> Digits:
    dims = (dim for layout in layouts_of(step) for dim in layout.dims)
    return tuple(pair for dim in dims for pair in pairs_of(dim.digits))


def said_of(plan: Plan, step: Step) -> str:
    """Describe a step: its operation, its axes, and both shardings."""
    if isinstance(step, ExchangeStep):
        return f"exchange: {plan.reshard.source} -> {plan.reshard.target}"
    ends = step.ends
    over = f" over {', '.join(map(str, ends.axes))}" if ends.axes else ""
    return f"{step.op}{over}: {ends.before} -> {ends.after}"


def comment(text: str) -> list[str]:
    """Format a step's description as the lines of a comment."""
    return textwrap.wrap(
        text,
        WIDTH - len(INDENT),
        initial_indent="# ",
        subsequent_indent="#    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


@dataclass(frozen=True)
class StepsText:
    """The parts of a module's template context that are specific to plans of several steps."""

    module: ModuleText
    host: HostText
    how: Steps
    ends: Exchange

    @property
    def target_short(self) -> tuple[int, ...]:
        """The dimensions of the result whose padding the module must still zero."""
        last = self.how.blocks[-1] if self.how.blocks else None
        if last is not None and last.boxes is not None and last.is_padded:
            return ()
        return short_dims(self.ends.target)


def steps_text(plan: Plan, command: str) -> StepsText:
    """Return the parts of the template context for a plan that is emitted step by step."""
    ends, how = ends_of(plan), plan.once(steps_of)
    received = [int(block.received.max()) for block in how.blocks]
    facts = (
        *step_facts(plan, ends, how.said, received),
        "",
        f"The busiest device receives {how.wire[0]} bytes.",
    )
    said = Said(title(plan), facts)
    functions = box_functions(as_vectors(ends))
    module = text_of(plan, command, PYTHON, functions, said, ends)
    host = host_text(plan, module, ends)
    if how.axes is not None:
        host = _on_program_axes(plan, how.axes, host)
    return StepsText(module, host, how, ends)


def _on_program_axes(plan: Plan, axes: ProgramAxes, host: HostText) -> HostText:
    source = plan.reshard.source
    sizes = tuple((name, size) for name, (_, size) in zip(axes.names, axes.digits, strict=True))
    dims = [_entry(axes, source, dim.axes) for dim in source.dims]
    terms = [_entry(axes, source, source.unreduced)] if source.unreduced else []
    spec = f"P({', '.join(terms + dims)})"
    return replace(host, axes=(sizes, host.axes[1]), specs=(spec, host.specs[1]))


def _entry(axes: ProgramAxes, sharding: Sharding, refs: tuple[AxisRef, ...]) -> str:
    names = axes.over(tuple((d.stride, d.size) for d in map(sharding.mesh.digit, refs)))
    assert names is not None
    return axes_text(names) if names else "None"


def is_stepwise(plan: Plan) -> bool:
    """Return whether a plan is emitted step by step, because it has several steps or a side has
    terms."""
    sides = plan.reshard.source, plan.reshard.target
    return isinstance(plan, SteppedPlan) or any(side.unreduced for side in sides)


def refuse_steps(plan: Plan) -> None:
    """Raise InputError if no module can be emitted for a plan of several steps."""
    reshard = plan.reshard
    check_ascii(reshard)
    if set(reshard.source.mesh.device_ids) != set(reshard.target.mesh.device_ids):
        raise InputError(
            "jax_xla can reduce partial sums only within one set of devices",
            argument="target_mesh",
            got=str(reshard.target.mesh),
            expected="the devices of the source, in any order",
        )
    _refuse_size(plan)


def _refuse_size(plan: Plan) -> None:
    reshard = plan.reshard
    padded = [
        dim.parts * dim.size
        for step in plan.steps
        for layout in layouts_of(step)
        for dim in layout.dims
    ]
    if max(padded, default=0) > MAX_INDEX - ROUNDING:
        raise InputError(
            f"padded shards have indices up to {max(padded)}, which jax_xla cannot compute in 32 "
            "bits",
            argument="shape",
            got="x".join(map(str, reshard.shape)),
            expected=f"padded shards that end at or below {MAX_INDEX - ROUNDING}",
        )
    devices = reshard.source.mesh.size
    boxes = [block.boxes for block in plan.once(steps_of).blocks if block.boxes is not None]
    most = max((each.looked_at(devices) for each in boxes), default=0)
    if most > MOST_BOXES:
        raise InputError(
            "the plan has too many boxes for jax_xla, whose trace visits each box of a step",
            argument="strategy",
            got=f"{most} boxes of a {plan.strategy} plan, including empty boxes",
            expected=f"at most {MOST_BOXES}, or strategy direct",
        )
