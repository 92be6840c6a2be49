"""Count the bytes of passes over memory in a compiled program.

A pass is an executed instruction such as a copy, a change of layout, a slice or a concatenation.
Collectives, kernels, parameters, constants and moves between HBM and VMEM (`copy-start`) are not
passes. A pass reads its operands and writes its result. A slice reads only the bytes of its result,
and an in-place update writes only the update. The bytes of an array include the padding of its
layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardwright.codegen.spec.hlo.calls import executions
from shardwright.codegen.spec.hlo.received import COLLECTIVES
from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule

_FREE = {
    "after-all",
    "async-done",
    "async-start",
    "async-update",
    "bitcast",
    "broadcast",
    "call",
    "conditional",
    "constant",
    "copy-done",
    "copy-start",
    "custom-call",
    "get-tuple-element",
    "iota",
    "opt-barrier",
    "parameter",
    "partition-id",
    "recv",
    "recv-done",
    "replica-id",
    "send",
    "send-done",
    "slice-done",
    "slice-start",
    "tuple",
    "while",
}
_CUT = ("slice", "dynamic-slice")


def copied_bytes(text: str) -> int:
    """Return the bytes that a device reads and writes in the passes of a program. `text`: its
    HLO. Passes in a loop count once per iteration."""
    module = HloModule(text)
    often = executions(module)
    inner = {name for each in module.instructions() for name in _within(each)}
    return sum(
        often[name].times * sum(_pass(module, each) for each in body.values())
        for name, body in module.computations.items()
        if name in often and name not in inner
    )


def _within(each: HloInstruction) -> Iterator[str]:
    """Yield the names of the computations that are part of an instruction, such as the body of a
    fusion. The instructions of these computations are not separate passes."""
    for kind, name in each.called.items():
        if (each.op, kind) == ("fusion", "calls") or (kind == "to_apply" and each.op != "call"):
            yield name


def _pass(module: HloModule, each: HloInstruction) -> int:
    op = each.op.removesuffix("-start").removesuffix("-done")
    if each.op in _FREE or op in COLLECTIVES:
        return 0
    here = module.computations[each.computation]
    if each.op == "fusion":
        return _fused(module, each.called["calls"])
    if each.op == "dynamic-update-slice":
        return 2 * _size(here[each.operands[1]])
    if each.op in _CUT:
        return 2 * _size(each)
    return _size(each) + sum(map(_size, module.operands(each)))


def _fused(module: HloModule, name: str) -> int:
    """Return the bytes that a fusion reads and writes. `name`: the computation that it runs."""
    body, root = module.computations[name], module.root(name)
    assert root is not None
    results = [body[operand] for operand in root.operands] if root.op == "tuple" else [root]
    written, updated = 0, set[str]()
    for result in results:
        seen, in_place = _behind(body, result), 0
        while seen.op == "dynamic-update-slice":
            in_place += _size(body[seen.operands[1]])
            seen = _behind(body, body[seen.operands[0]])
        written += in_place or _size(result)
        updated |= {seen.name} if in_place else set()
    given = (each for each in body.values() if each.op == "parameter")
    return written + sum(_read(module, each) for each in given if each.name not in updated)


def _behind(body: Mapping[str, HloInstruction], each: HloInstruction) -> HloInstruction:
    while each.op == "bitcast":
        each = body[each.operands[0]]
    return each


def _read(module: HloModule, given: HloInstruction) -> int:
    """Return the bytes that a fusion reads of one operand. `given`: the parameter of the fusion for
    this operand."""
    read = 0
    for user in module.users.get((given.computation, given.name), []):
        if user.op == "bitcast":
            read += _read(module, user)
        elif user.op in _CUT and user.operands[0] == given.name:
            read += _size(user)
        else:
            return _size(given)
    return min(read, _size(given))


def _size(each: HloInstruction) -> int:
    return sum(array.padded_bytes for array in each.arrays)
