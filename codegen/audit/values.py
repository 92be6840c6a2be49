"""Values of an HLO module, seen through fusions: their producers, their users, and indices on each
device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule
from shardwright.ir.arrays import Integers

_INSIDE = ("fusion", "call")
_SAME = ("copy", "convert", "copy-start", "copy-done", "bitcast", "reshape", "broadcast")
_BINARY: dict[str, Callable[[Integers, Integers], Integers]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": lambda a, b: a // np.maximum(b, 1),
    "remainder": lambda a, b: a % np.maximum(b, 1),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "shift-left": np.left_shift,
    "shift-right-logical": np.right_shift,
}


class HloValues:
    """The values of a module that runs on `devices` devices."""

    def __init__(self, module: HloModule, devices: int) -> None:
        self.module, self.devices = module, devices

    def resolved(self, each: HloInstruction) -> HloInstruction:
        """Return the instruction that produces a value, resolving fusions and their parameters."""
        while True:
            found = self._behind(each)
            if found is None:
                return each
            each = found

    def operand(self, each: HloInstruction, number: int = 0) -> HloInstruction | None:
        """Return the instruction that produces an operand, or None if the text lacks it."""
        here = self.module.computations[each.computation]
        if number >= len(each.operands) or each.operands[number] not in here:
            return None
        return self.resolved(here[each.operands[number]])

    def _behind(self, each: HloInstruction) -> HloInstruction | None:
        module = self.module
        if each.op == "parameter":
            callers = module.callers.get(each.computation, [])
            if len(callers) != 1 or callers[0].op not in _INSIDE:
                return None
            here = module.computations[callers[0].computation]
            return here.get(callers[0].operands[int(each.operands[0])])
        if each.op in _INSIDE:
            return module.root(each.called.get("calls") or each.called.get("to_apply") or "")
        if each.op == "get-tuple-element":
            made = self.operand(each)
            if made is not None and made.op == "tuple":
                here = module.computations[made.computation]
                return here.get(made.operands[int(each.text("index") or 0)])
        return None

    def users(self, each: HloInstruction) -> Iterator[HloInstruction]:
        """Yield the instructions that use a value, including those inside fusions."""
        module = self.module
        for user in module.users.get((each.computation, each.name), []):
            if user.op not in _INSIDE:
                yield user
                continue
            body = module.computations.get(user.called.get("calls") or "", {})
            taken = [number for number, name in enumerate(user.operands) if name == each.name]
            for inner in body.values():
                if inner.op == "parameter" and int(inner.operands[0]) in taken:
                    yield from self.users(inner)
        if each.is_root:
            for caller in module.callers.get(each.computation, []):
                if caller.op in _INSIDE:
                    yield from self.users(caller)

    def index(self, each: HloInstruction | None) -> Integers | None:
        """Return the integer value of an instruction on each device, [devices], or its table of
        integers, [devices, entries]. Return None unless it is computed only from the device number
        and constants."""
        if each is None:
            return None
        match each.op:
            case "partition-id":
                return np.arange(self.devices)
            case "replica-id":
                return np.zeros(self.devices, dtype=np.int64)
            case "constant":
                return self._constant(each)
            case "dynamic-slice":
                return self._looked_up(each)
            case op if op in _SAME:
                return self.index(self.operand(each))
            case op if op in _BINARY:
                sides = [self.index(self.operand(each, side)) for side in (0, 1)]
                if sides[0] is None or sides[1] is None:
                    return None
                return _BINARY[op](sides[0], sides[1])
            case _:
                return None

    def _constant(self, each: HloInstruction) -> Integers | None:
        text = each.operands[0] if each.operands else ""
        numbers = [int(number) for number in re.findall(r"-?\d+", text)]
        if re.search(r"[^\d\s,{}-]", text) or not numbers:
            return None
        table = np.array(numbers, dtype=np.int64)
        whole = table[0] if not each.arrays[0].shape else table
        return np.broadcast_to(whole, (self.devices, *np.shape(whole)))

    def _looked_up(self, each: HloInstruction) -> Integers | None:
        table, at = self.index(self.operand(each)), self.index(self.operand(each, 1))
        if (
            table is None
            or at is None
            or table.ndim != 2
            or each.numbers("dynamic_slice_sizes") != (1,)
        ):
            return None
        return np.asarray(table[np.arange(self.devices), np.clip(at, 0, table.shape[1] - 1)])
