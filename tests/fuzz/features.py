"""What is particular to a case, by name, and what the cases of every backend must have."""

from __future__ import annotations

import math

from .case import BYTES_ALONE, ITEMSIZES, Case, JaxUse, Side, TorchUse, Use, VerifyUse
from .reference import groups, read


def describe(case: Case) -> str:
    """What a case is, over a few lines."""
    return (
        f"case {case.id}: {', '.join(sorted(features(case)))}\n    {case.use}\n    {case.command()}"
    )


def features(case: Case) -> frozenset[str]:
    """The names of what is particular to a case; `FEATURES` lists them all."""
    source, target = case.source, case.target
    own, other = set(source.device_ids), set(target.device_ids)
    found = {
        case.dtype,
        f"rank {len(case.shape)}",
        f"strategy {case.strategy}",
        "devices the same" if own == other else "devices foreign",
        "devices disjoint" if not own & other else "devices shared",
        "order the same" if case.same_order else "order another",
        "axes the same" if source.axes == target.axes else "axes others",
    }
    found |= {f"{side.split} split" for side in (source, target)}
    given: dict[str, object] = {
        "topology": case.topology,
        "more than 64 devices": case.many,
        "uneven": any(_is_uneven(case, side) for side in (source, target)),
        "sub-axes": ":(" in source.sharding + target.sharding,
        "ids permuted": list(source.device_ids) != sorted(source.device_ids),
        "part of a run moves": _moves_part_of_a_run(case),
        "one device": min(len(own), len(other)) == 1,
        "open or priority": "?" in source.sharding + target.sharding,
        "fewer elements than devices": math.prod(case.shape) < len(own),
    }
    found |= {name for name, is_there in given.items() if is_there}
    return frozenset(found | _sums(case) | _used(case.use))


def _is_uneven(case: Case, side: Side) -> bool:
    """Whether shards of a side differ in size."""
    pairs = zip(case.shape, read(side).dims, strict=True)
    return any(extent % math.prod(ref.size for ref in refs) for extent, refs in pairs)


def _sums(case: Case) -> set[str]:
    """What becomes of unreduced axes."""
    before, after = read(case.source), read(case.target)
    if not before.terms and not after.terms:
        return set()
    adds = any(len(befores) > 1 for befores, _ in groups(case))
    given = {
        "unreduced new": any(len(afters) > 1 for _, afters in groups(case)),
        "unreduced kept": not adds and bool(before.terms and after.terms),
        "unreduced kept in part": adds and bool(after.terms),
        "unreduced summed": adds and not after.terms,
        "unreduced summed and new": adds and any(len(afters) > 1 for _, afters in groups(case)),
        "unreduced max": "max" in (before.operation, after.operation),
        "unreduced min": "min" in (before.operation, after.operation),
        "unreduced by two operators": before.terms
        and after.terms
        and before.operation != after.operation,
        "several unreduced axes": max(len(before.terms), len(after.terms)) > 1,
        "bytes alone count": case.topology == BYTES_ALONE,
    }
    return {name for name, is_there in given.items() if is_there}


def _moves_part_of_a_run(case: Case) -> bool:
    """Whether of what a dimension no longer is split by a part splits another one."""
    sides = zip(read(case.source).dims, read(case.target).dims, strict=True)
    pairs = [(set(before), set(after)) for before, after in sides]
    gained = [after - before for before, after in pairs]
    lost = [before - after for before, after in pairs]
    return case.source.axes == case.target.axes and any(
        one & other and one - other for one in lost for other in gained
    )


def _used(use: Use) -> set[str]:
    match use:
        case JaxUse():
            given: dict[str, object] = {
                "x64 on": use.x64,
                "x64 off": not use.x64,
                "axes Explicit": use.axis_types == "Explicit",
                "set_mesh": use.set_mesh,
                use.call: True,
                use.derivative: use.derivative,
                "vmap": use.batch,
                "mesh of other axes": use.other_axes,
                "argument placed otherwise": not use.placed,
                "no target_mesh": not use.names_target,
                "devices shuffled": list(use.devices) != sorted(use.devices),
            }
        case TorchUse():
            given = {
                "over a group": use.door == "group",
                "dtensor": use.door == "dtensor",
                "waited for later": use.later,
                "out": use.out,
                "gradient": use.gradient,
                "negative shards": use.negative == "shards",
                "negative out": use.negative == "out",
                "unaligned": use.offset,
            }
        case VerifyUse():
            given = {"judged by verify": True}
    return {name for name, is_there in given.items() if is_there}


_EVERYWHERE = (
    *(dtype for dtype in ITEMSIZES if dtype != "float64"),
    *(f"rank {rank}" for rank in range(5)),
    *("strategy auto", "strategy direct", "topology"),
    *("devices the same", "devices foreign", "devices disjoint", "devices shared"),
    *("order the same", "order another", "axes the same", "axes others"),
    *("flat split", "nested split", "sub-axes", "uneven", "ids permuted", "one device"),
    *("part of a run moves", "judged by verify"),
    *("open or priority", "fewer elements than devices"),
)
_JAX = (
    *("x64 on", "x64 off", "axes Explicit", "set_mesh", "eager", "jit", "program"),
    *("vjp", "jvp", "vmap", "mesh of other axes", "argument placed otherwise"),
    *("no target_mesh", "devices shuffled"),
)
_FATES = ("kept", "kept in part", "summed", "new", "summed and new", "by two operators")
_SUMS = (
    *(f"unreduced {fate}" for fate in _FATES),
    *("unreduced max", "unreduced min", "several unreduced axes"),
)
FEATURES = {
    "pallas_tpu": (*_EVERYWHERE, *_JAX, *_SUMS, "bytes alone count"),
    "triton_gpu": (
        *(*_EVERYWHERE, *_SUMS, "bytes alone count", "float64", "more than 64 devices"),
        *("over a group", "dtensor", "waited for later"),
        *("out", "gradient", "negative shards", "negative out", "unaligned"),
    ),
    "jax_xla": (*_EVERYWHERE, *_JAX, *_SUMS, "float64", "strategy basis"),
}
"""What the cases of each backend must have among them."""
