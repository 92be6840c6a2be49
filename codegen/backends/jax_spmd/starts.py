"""Start indices of updates. `lax.dynamic_update_slice` itself counts negative indices from the end,
so modules omit the statements with which the traced program has already done so."""

from __future__ import annotations

from shardwright.codegen.backends.jax_spmd.stopped import Uses
from shardwright.codegen.partition.local.steps import Compute, LocalBody, LocalProgram


def counted(program: LocalProgram, body: LocalBody, uses: Uses) -> dict[int, int | None]:
    """Return the start indices of updates for which the traced program has already counted negative
    indices from the end, each with the index before that step. Also return the intermediate values
    that only that step uses, each with None."""
    makers = {step.results[0]: step for step in body.steps if isinstance(step, Compute)}
    found: dict[int, int | None] = {}
    for result, step in makers.items():
        if step.op.kind != "select_n" or len(step.operands) != 3:
            continue
        negative, index, moved = step.operands
        ends = _ends(program, uses, result)
        if _is_of(makers, negative, "lt", index, {0}) and _is_of(makers, moved, "add", index, ends):
            found[result] = index
            for each in (negative, moved):
                if all(use is step for use in uses[each]):
                    found[each] = None
    return found


def _ends(program: LocalProgram, uses: Uses, start: int) -> set[int]:
    """Return the extent from whose end updates at `start` count, as a set of one. Return an empty
    set if the index has other uses or applies to several extents."""
    ends: set[int] = set()
    for use in uses[start]:
        is_update = isinstance(use, Compute) and use.op.kind == "dynamic_update_slice"
        if not is_update or not isinstance(use, Compute) or use.formed:
            return set()
        array, _, *starts = use.operands
        dims = [dim for dim, each in enumerate(starts) if each == start]
        if any(program.shape(array)[dim] != program.of(array).shape[dim] for dim in dims):
            return set()
        ends.update(program.shape(array)[dim] for dim in dims)
    return ends if len(ends) == 1 else set()


def _is_of(
    makers: dict[int, Compute], local: int, kind: str, index: int, numbers: set[int]
) -> bool:
    """Return whether an op `kind` makes a value from `index` and one of `numbers`."""
    step = makers.get(local)
    if step is None or step.op.kind != kind or len(step.operands) != 2:
        return False
    first, second = step.operands
    constant = makers.get(second)
    is_number = constant is not None and constant.op.kind == "constant"
    number = dict(constant.op.params).get("value") if is_number and constant else None
    return first == index and number in numbers
