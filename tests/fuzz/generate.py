"""The case of an id. Every choice is drawn from the id alone, so that an id names one case until
this file changes.

Whatever a backend must take may come together; what it refuses for a reason that users are told is
not drawn, or listed in `refusals`.
"""

from __future__ import annotations

from .case import BYTES_ALONE, ITEMSIZES, Case, JaxUse, Side, TorchUse, Use, VerifyUse
from .dice import Dice
from .features import features
from .reference import read
from .shardings import (
    MOST_IDS,
    Mesh,
    Ref,
    axes_of,
    elsewhere,
    mesh_of,
    near,
    other_mesh,
    pieces_of,
    same_devices,
    sharding_of,
    text_of,
)

TURNS = ("pallas_tpu", "triton_gpu", "jax_xla", "triton_gpu", "jax_xla")
"""The backends of consecutive ids: those whose cases take longest are the fewest."""

EXTENTS = {0: 0, 1: 60, 2: 23, 3: 9, 4: 6}
"""The largest extent by rank."""

SIZES = (1, 2, 3, 4, 4, 6, 6, 8, 8, 8)
SUM_SIZES = (2, 3, 4, 6, 8, 8, 8, 8, 12, 16, 16)
"""Devices of a mesh; what stays unreduced leaves few of eight to split dimensions in any order."""

LARGE_SIZES = (66, 72, 80, 96)
"""Devices of the few meshes that `verify` does not run at full size."""

DEVICES = MOST_IDS + 1
"""Devices that a process has: as many as ids and, as the interpreter needs, one."""

TOPOLOGIES = (
    ("switch", 1 << 20),
    ("h100", 8),
    ("h100:2x8", 16),
    ("hierarchical:4x4", 16),
    ("torus:4x4", 16),
    ("v5p:2x2x4", 16),
    ("v6e:4x4", 16),
)
"""Topologies on which every device may send to every other, and how many devices they have."""

_RINGS = tuple(
    f"torus:{axes},bandwidth=5e10,latency=1e-6,powers_of_two=1"
    for axes in ("8,wrap=1", "4x2,wrap=1x0")
)
FORWARDING = {2: ("v5e:1x2",), 4: ("v5e:2x2", "v5e:4x1"), 8: ("v5e:2x4", "v5e:4x2", *_RINGS)}
"""Those that forward, by the size of the meshes that fill them; some, as v5e:16x16, have axes that
wrap around."""

FATES = ("kept",) * 3 + ("kept in part",) * 3 + ("summed",) * 3 + ("new",) * 2 + ("mixed",) * 5
"""What becomes of unreduced axes."""


def case_of(number: int) -> Case:
    """The case of an id, a whole number of zero or more."""
    dice = Dice(number)
    backend = TURNS[number % len(TURNS)]
    rank = dice.choice([2, 2, 3]) if dice.plain else dice.choice([0, 1, 1, 2, 2, 3, 3, 4, 4])
    shape = tuple(_extent(dice, rank) for _ in range(rank))
    dtypes = [d for d in ITEMSIZES if (backend, d) != ("pallas_tpu", "float64")]
    dtype = dtypes[number // len(TURNS) % len(dtypes)]
    large = backend == "triton_gpu" and dice.rarely(0.05)
    meshes, texts = _large(dice, rank) if large else _shardings(dice, backend, rank, dtype)
    splits = [dice.choice(["flat", "flat", "nested"]) for _ in meshes]
    sides = [
        Side(mesh.axes, mesh.ids, text, "flat" if dice.plain and dice.happens(0.7) else split)
        for mesh, text, split in zip(meshes, texts, splits, strict=True)
    ]
    strategy = _strategy(dice, backend, *sides)
    bare = Case(number, backend, shape, dtype, *sides, strategy, None, TorchUse())
    topology = _topology(dice, bare)
    return Case(number, backend, shape, dtype, *sides, strategy, topology, _use(dice, bare))


def _large(dice: Dice, rank: int) -> tuple[tuple[Mesh, Mesh], tuple[str, str]]:
    """Meshes of more devices than `verify` runs: the same devices, perhaps as other axes."""
    count = dice.choice(LARGE_SIZES)
    mesh = Mesh(axes_of(dice, count), tuple(range(count)))
    target = same_devices(dice, mesh, moves=True, renames=True)
    first, second = (sharding_of(dice, each, rank) for each in (mesh, target))
    return (mesh, target), (text_of(dice, mesh, first), text_of(dice, target, second))


def _extent(dice: Dice, rank: int) -> int:
    """One that divides, or any, or a small one."""
    return dice.choice((dice.randint(1, EXTENTS[rank]), dice.randint(1, 4), 8))


def _shardings(
    dice: Dice, backend: str, rank: int, dtype: str
) -> tuple[tuple[Mesh, Mesh], tuple[str, str]]:
    """The meshes of both sides and the texts of their shardings."""
    sums = dice.happens(0.5 if backend == "jax_xla" else 0.35)
    sizes = SUM_SIZES if sums and backend != "pallas_tpu" else SIZES
    mesh = mesh_of(dice, 8 if dice.plain and dice.happens(0.8) else dice.choice(sizes))
    if sums:
        return _sums(dice, mesh, rank, dtype, kernels=backend != "jax_xla")
    target = other_mesh(dice, mesh)
    first = sharding_of(dice, mesh, rank)
    is_near = target.axes == mesh.axes and dice.happens(0.4)
    second = near(dice, first) if is_near else sharding_of(dice, target, rank)
    return (mesh, target), (text_of(dice, mesh, first), text_of(dice, target, second))


def _sums(
    dice: Dice, mesh: Mesh, rank: int, dtype: str, *, kernels: bool
) -> tuple[tuple[Mesh, Mesh], tuple[str, str]]:
    """The same where axes are unreduced before, after, or both; `kernels`: terms and sums
    may go to other devices."""
    fate = "kept" if dice.plain and dice.happens(0.3) else dice.choice(FATES)
    before, after = _unreduced(dice, mesh, fate)
    kinds = _operators(dice, dtype, apart=not set(before) & set(after))
    moves = fate in ("kept", "summed") or not before
    target = same_devices(dice, mesh, moves=moves, renames=not after)
    if kernels and moves and dice.rarely(0.5):
        target = other_mesh(dice, mesh) if not after else elsewhere(dice, target)
    first = sharding_of(dice, mesh, rank, before)
    is_near = target.axes == mesh.axes and set(after) <= set(before) and dice.happens(0.7)
    second = near(dice, first, after) if is_near else sharding_of(dice, target, rank, after)
    sides = zip((mesh, target), (first, second), kinds, strict=True)
    one, other = (text_of(dice, *side) for side in sides)
    return (mesh, target), (one, other)


def _unreduced(dice: Dice, mesh: Mesh, fate: str) -> tuple[list[Ref], list[Ref]]:
    """The unreduced axes before and after."""
    pieces = [ref for ref in pieces_of(dice, mesh) if ref.size > 1]
    several = fate in ("kept in part", "mixed") or dice.rarely(0.4)
    most = len(pieces) if several else min(1, len(pieces))
    least = min(2 if several else 1, most)
    some = sorted(dice.some(dice.sample(pieces, most), least), key=pieces.index)
    if fate == "mixed":
        others = [ref for ref in pieces if ref not in some or dice.happens(0.2)]
        return some, dice.some(others, min(1, len(others)))
    fewer = dice.some(some[dice.randint(0, 1) :][: len(some) - 1], 0)
    return {
        "kept": (some, some),
        "kept in part": (some, fewer or some[:1]),
        "summed": (some, []),
        "new": (fewer, some),
    }[fate]


def _operators(dice: Dice, dtype: str, *, apart: bool) -> tuple[str, str]:
    """By what the terms of both sides are put together: by one operator where axes stay."""
    extrema = ("max", "min")
    kinds = extrema if dtype == "bool" else ("", *extrema)
    one = dice.choice(extrema) if dtype == "bool" or dice.rarely(0.4) else ""
    return one, dice.choice(kinds) if apart and dice.happens(0.8) else one


def _strategy(dice: Dice, backend: str, source: Side, target: Side) -> str:
    """A strategy that backend and sides allow."""
    adds = source.sharding.partition("unreduced=")[2] != target.sharding.partition("unreduced=")[2]
    allowed = ["auto", "auto"] if adds else ["auto", "auto", "direct"]
    if backend == "jax_xla" and set(source.device_ids) == set(target.device_ids):
        allowed += ["basis", "basis"]
    return dice.choice(allowed)


def _topology(dice: Dice, case: Case) -> str | None:
    """A topology for the devices; for kernels on v5e one that the meshes fill in order."""
    if not dice.rarely(0.5):
        return None
    ids = case.source.device_ids
    filled = case.same_order and ids == tuple(range(len(ids)))
    if filled and len(ids) in FORWARDING and dice.happens(0.5):
        return dice.choice(FORWARDING[len(ids)])
    if case.backend != "jax_xla" and "unreduced" in case.source.sharding and dice.happens(0.6):
        return None if case.many else BYTES_ALONE
    return dice.choice([name for name, size in TOPOLOGIES if max(case.device_ids) < size])


def _use(dice: Dice, case: Case) -> Use:
    """How the module is used; TPU kernels with terms are judged by `verify`."""
    terms = "unreduced" in case.source.sharding + case.target.sharding
    verified = dice.happens(0.3) or (case.backend == "pallas_tpu" and terms)
    if verified and not case.many:
        return VerifyUse()
    return _torch_use(dice, case) if case.backend == "triton_gpu" else _jax_use(dice, case)


def _torch_use(dice: Dice, case: Case) -> Use:
    door = "local" if case.many else dice.choice(["local"] * 3 + ["group", "dtensor"])
    if door == "dtensor" and not (_placed(case, case.source) and _placed(case, case.target)):
        door = "group"
    sums = "unreduced" in case.source.sharding + case.target.sharding
    gradient = door == "local" and not sums and case.floating and dice.happens(0.3)
    out = door != "dtensor" and not gradient and dice.happens(0.7)
    later = door == "group" and dice.happens(0.5)
    negative = ""
    if door == "local" and not sums and case.dtype in ("float32", "float64") and not dice.plain:
        negative = "out" if out else "shards"
    return TorchUse(door, later, out, gradient, negative, dice.choice([0, 0, 1, 3]))


def _placed(case: Case, side: Side) -> bool:
    """Whether placements of a DTensor say the sharding: whole axes, of which several split a
    dimension only chunk by chunk; devices ascend, as torch numbers them."""
    found = read(side)
    if side.split == "flat" and any(len(dim) > 1 for dim in found.dims):
        return False
    refs = [ref for dim in found.split_by for ref in dim]
    whole = all(ref.size == found.axes[ref.name] for ref in refs)
    return bool(side.axes) and whole and list(side.device_ids) == sorted(side.device_ids)


def _jax_use(dice: Dice, case: Case) -> Use:
    known = set(case.target.device_ids) <= set(case.source.device_ids)
    # Which of equal terms is the largest is not said: no one derivative.
    unsaid = {"unreduced max", "unreduced min"} & features(case)
    derivative = dice.choice(["", "vjp", "jvp"]) if case.floating and not unsaid else ""
    count = len(case.device_ids)
    shuffled = dice.sample(range(DEVICES), count)
    return JaxUse(
        x64=ITEMSIZES[case.dtype] == 8 or dice.happens(0.5),
        axis_types="Explicit" if dice.rarely(0.4) else "Auto",
        set_mesh=dice.choice(["source", "target"]) if dice.rarely(0.5) else "",
        call=dice.choice(["eager", "jit", "program"]) if case.same_order else "eager",
        derivative=derivative,
        batch=dice.choice([2, 3]) if dice.rarely(0.15) else 0,
        other_axes=dice.rarely(0.2),
        placed=not dice.rarely(0.2),
        names_target=not (known and dice.happens(0.4)),
        devices=tuple(shuffled if dice.rarely(0.3) else range(count)),
    )
