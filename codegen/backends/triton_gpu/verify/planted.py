"""Check that faults planted in a kernel are still found when Triton's interpreter runs it.

`Memory` replaces private methods of Triton, which may change with its version, so a verifying
process first checks that faults are still found. Imported only by workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from shardwright.codegen.backends.triton_gpu.verify.memory import Memory, guarded
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks.compare import MismatchError

SIZE = 8
POISON = 0xFF


@triton.jit  # type: ignore[untyped-decorator]
def _halves(x, out, size, shift, SIZE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    """Copy the elements of `x` from index `shift` on to `out`; each of two programs copies half."""
    place = tl.program_id(0) % 2 * (SIZE // 2) + tl.arange(0, SIZE // 2)
    tl.store(out + place, tl.load(x + place + shift, mask=place < size), mask=place < size)


def missed() -> Iterator[str]:
    """Yield a description of every planted fault that the checks miss, and of any fault that they
    report in a correct kernel."""
    fault = _fault()
    if fault:
        yield f"a kernel without a fault is said to have one: {fault}"
    planted = (
        ("a store that is made twice", _fault(programs=3), r"result: element \[0\] is stored 2 "),
        ("a store that is left out", _fault(size=SIZE - 1), r"result: element \[7\] is stored 0 "),
        ("a store into the input", _fault(into_input=True), "a kernel stores into the input "),
        ("a load beyond the input", _fault(shift=SIZE), "a kernel loads from memory outside "),
        ("fresh memory", _fault(programs=1, fresh=True), "poison"),
    )
    for what, found, expected in planted:
        if not re.match(expected, found):
            yield f"{what} is not found"


def _fault(
    programs: int = 2,
    size: int = SIZE,
    shift: int = 0,
    into_input: bool = False,
    fresh: bool = False,
) -> str:
    """Return the fault found in one launch of `_halves`, or "". `programs`, `size`, `shift`,
    `into_input`: arguments that plant a fault; `fresh`: whether to return "poison" if memory to
    which no program has stored contains poison."""
    x = guarded(torch.arange(SIZE, dtype=torch.int32))
    memory = Memory(POISON, {"x": x})
    try:
        with memory, quick_launches():
            result = torch.empty(SIZE, dtype=torch.int32)
            _halves[(programs,)](x, x if into_input else result, size, shift, SIZE)
        if fresh:
            return "poison" if (result[SIZE // 2 :] == -1).all() else ""
        memory.check({"result": result})
    except MismatchError as error:
        return str(error)
    return ""
