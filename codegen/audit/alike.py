"""Find the devices that have the same value, for each value of a module, in program order.

Devices in the same class of a value hold equal values. A value of unknown origin is assumed to
differ on every device.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from shardwright.codegen.spec.hlo.received import ends
from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule

Classes = tuple[int, ...]
_COLLECTIVES = ("all-gather", "all-reduce", "all-gather-start", "all-reduce-start")
_OPAQUE = ("while", "conditional", "custom-call", "rng", "rng-bit-generator", "infeed", "recv")


def alike(module: HloModule, devices: int) -> dict[tuple[str, str], Classes]:
    """Return the class of every value on each device, by computation and name."""
    found: dict[tuple[str, str], Classes] = {}
    apart = tuple(range(devices))
    done: set[str] = set()

    def evaluate(name: str, given: list[Classes]) -> Classes:
        done.add(name)
        last = apart
        for each in module.computations.get(name, {}).values():
            taken = [found[name, operand] for operand in each.operands if (name, operand) in found]
            found[name, each.name] = made = of(each, taken, given)
            last = made if each.is_root else last
        return last

    def of(each: HloInstruction, taken: list[Classes], given: list[Classes]) -> Classes:
        if each.op == "parameter":
            number = int(each.operands[0])
            if number < len(given):
                return given[number]
            return (0,) * devices if "sharding={replicated}" in each.rest else apart
        if each.op in ("fusion", "call"):
            inner = each.called.get("calls") or each.called.get("to_apply") or ""
            # A computation with several callers: assume nothing about its arguments.
            once = inner not in done and len(module.callers[inner]) == 1
            return evaluate(inner, taken) if once else apart
        return _classes(each, taken, devices)

    evaluate(module.entry, [])
    for name in module.computations:
        if name not in done:
            evaluate(name, [])
    return found


def _classes(each: HloInstruction, taken: list[Classes], devices: int) -> Classes:
    if each.op in ("constant", "iota", "replica-id"):
        return (0,) * devices
    if each.op == "partition-id" or each.op in _OPAQUE or each.op.startswith("async-"):
        return tuple(range(devices))
    if each.op in _COLLECTIVES:
        groups = ends(each.op.removesuffix("-start"), each.rest, devices)
        group_of = {device: group for group in groups for device in group}
        return _numbered(
            tuple(tuple(one[member] for one in taken) for member in group_of.get(device, [device]))
            for device in range(devices)
        )
    if each.op in ("all-to-all", "reduce-scatter", "collective-permute", "collective-broadcast"):
        return tuple(range(devices))
    return _numbered(tuple(one[device] for one in taken) for device in range(devices))


def _numbered(keys: Iterable[Hashable]) -> Classes:
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)
