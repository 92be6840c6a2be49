"""Learn layouts from the code that loads tensors: run the loader on coded tensors, fit layouts
to its output, and check every element."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import metadata

import numpy as np
import numpy.typing as npt

from shardwright.codegen.learn.fit import fit_buffer
from shardwright.codegen.learn.fit_part import loops
from shardwright.codegen.learn.held import (
    PADDING,
    SCATTERED,
    UNKNOWN,
    HeldBlock,
    called,
    listed,
    named,
    order_of,
)
from shardwright.codegen.learn.logical import (
    LogicalTensor,
    check_memory,
    element_type,
    read_logical,
)
from shardwright.codegen.learn.pieces import differences
from shardwright.codegen.learn.probe import HeldBuffer, Load, probe
from shardwright.codegen.learn.processes import probe_in_processes
from shardwright.codegen.learn.sampled import AnyHeld, blocks_of, is_large, probe_sampled
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.given import mesh_of
from shardwright.ir.holdings import TensorClasses
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import BufferLayout, Shapes, Stack
from shardwright.ir.stored import Stored, lacking_of

AXIS = "rank"
"""The name of the mesh axis if ranks are given as a count or a list."""
NAME = r"[A-Za-z0-9_-]+"
"""A key of TOML that needs no quotes."""
_VERSIONED = ("torch", "transformers", "vllm", "megatron", "jax", "numpy")


@dataclass(frozen=True, repr=False)
class Learned(Drawn):
    """The buffers of a loader on each rank, and the layouts that describe them.

    `findings` describes everything that no layout covers: computed values, elements in an order
    that no cut produces, elements that no rank has. `str` returns TOML that `sw.Stored.parse`
    reads.
    """

    mesh: Mesh
    tensors: dict[str, tuple[int, ...]]
    dtype: str
    held: dict[int, dict[str, AnyHeld]]  # by device id and buffer
    layouts: dict[str, BufferLayout]  # the layouts of the buffers that have one
    findings: tuple[str, ...]
    source: str  # the loader, MODULE:FUNCTION
    like: str  # the library of the loader's tensors: numpy, torch or jax
    versions: dict[str, str]  # the versions of the imported distributions
    processes: bool = False  # whether each rank ran in its own process
    sampled: bool = False  # whether `held` is a sample; layouts were checked on every element

    @cached_property
    def stored(self) -> Stored:
        """The stored layout of the buffers for which a layout was found, and of the tensors that
        these buffers store completely.

        Raises InputError with the findings if no buffer has a layout.
        """
        layouts = dict(self.layouts)
        while layouts:
            whole = {name for name in self.tensors if self.missing(name, [*layouts]) is None}
            kept = {name: each for name, each in layouts.items() if _tensors(each) <= whole}
            if kept == layouts:
                shapes = {name: shape for name, shape in self.tensors.items() if name in whole}
                return Stored(self.mesh, shapes, layouts, self.dtype)
            layouts = kept
        raise InputError(
            "no buffer of the loader has a layout",
            argument="load",
            got="; ".join(self.findings),
            expected="a loader that moves elements unchanged",
        )

    def missing(self, tensor: str, buffers: Sequence[str]) -> str | None:
        """Describe the elements of a tensor that no rank has in these buffers; None if no element
        is missing.

        For a sample, only buffers with a layout count.
        """
        if self.sampled:
            return self._missing_in_layouts(tensor, buffers)
        shape, number = self.tensors[tensor], [*self.tensors].index(tensor)
        has = np.zeros(shape, dtype=np.bool_)
        for each in self.held.values():
            for held in (each[name] for name in buffers if name in each):
                assert isinstance(held, HeldBuffer)
                there = held.tensors == number
                if there.any():
                    has[tuple(held.index[there][:, dim] for dim in range(len(shape)))] = True
        return None if has.all() else _ranges(tensor, ~has)

    def _missing_in_layouts(self, tensor: str, buffers: Sequence[str]) -> str | None:
        layouts = {name: self.layouts[name] for name in buffers if name in self.layouts}
        stored = Stored(self.mesh, self.tensors, layouts, self.dtype, partial=True)
        every = [box for boxes in stored.holdings[tensor] for box in boxes]
        grid = TensorClasses.of(self.tensors[tensor], every)
        lacking = ~grid.mask(every)
        return f"{lacking_of(grid, lacking)[1]} of {tensor} are" if lacking.any() else None

    def __repr__(self) -> str:
        return (
            f"<Learned from {self.source}: {len(self.layouts)} of "
            f"{len({name for each in self.held.values() for name in each})} buffers have a layout, "
            f"on {self.mesh.size} ranks>"
        )

    def __str__(self) -> str:
        others = {n: list(s) for n, s in self.tensors.items() if n not in self.stored.tensors}
        said = [
            ("from", json.dumps(self.source)),
            ("like", json.dumps(self.like)),
            ("processes", "true" if self.processes else ""),
            ("versions", _table({name: json.dumps(each) for name, each in self.versions.items()})),
            ("tensors", _table(others) if others else ""),
            ("findings", json.dumps(self.findings, indent=2) if self.findings else ""),
        ]
        lines = [f"{key} = {value}" for key, value in said if value]
        return "\n".join([str(self.stored), "[learned]", *lines])


def _table(entries: Mapping[str, object]) -> str:
    pairs = (
        f"{name if re.fullmatch(NAME, name) else json.dumps(name)} = {each}"
        for name, each in entries.items()
    )
    return f"{{{', '.join(pairs)}}}"


def learn(
    load: Load,
    *,
    logical: Mapping[str, object],
    ranks: object,
    dtype: object = None,
    processes: bool = False,
) -> Learned:
    """Return the stored layouts of a loader's buffers.

    `load(rank, tensors)` returns the arrays that a rank stores, by buffer name. It runs several
    times for each rank, on tensors in which every element has a distinct code; the resulting
    layouts are checked on every element. `logical`: for each tensor its shape (then the loader gets
    a float64 numpy array), or a numpy, torch or jax array whose shape, kind and element type the
    loader gets. `ranks`: the ranks, their count, or a mesh such as `"dp=2,tp=4"`, whose device ids
    are the ranks. `dtype`: the stored element type, in which codes are exact; by default the type
    of the tensors, or float32. `processes`: run every rank in its own process, in a torch process
    group over gloo. Raises InputError for a loader that does not return a dict of arrays, or whose
    buffers differ between runs.
    """
    if not callable(load):
        raise InputError(
            "a loader must be a function",
            argument="load",
            got=in_a_line(load),
            expected="load(rank, tensors), which returns arrays by the names of buffers",
        )
    tensors, mesh = read_logical(logical), read_ranks(ranks)
    check_memory(tensors)
    exact = element_type(tensors, dtype)
    shapes = {name: each.shape for name, each in tensors.items()}
    large = not processes and is_large(shapes)
    held = _held(load, tensors, mesh, exact, processes, large)
    if not any(held.values()):
        raise InputError(
            "a loader must return a dict from buffer names to arrays",
            argument="load",
            got="no buffer on any rank",
            expected='a dict, for example {"qkv": array}',
        )
    found = {}
    for name in dict.fromkeys(name for each in held.values() for name in each):
        sides = [_of(each, name, shapes) for each in held.values()]
        layout = fit_buffer(sides, shapes, mesh)
        if layout is not None:
            found[name] = layout
    source, versions = _source(load)
    like = next(iter(tensors.values())).kind
    learned = Learned(
        mesh, shapes, exact, held, found, (), source, like, versions, processes, large
    )
    findings = list(_findings(learned))
    if large:
        findings += _unlike_the_sample(learned, load, tensors)
    return replace(learned, findings=tuple(findings))


def _held(
    load: Load,
    tensors: Mapping[str, LogicalTensor],
    mesh: Mesh,
    exact: str,
    processes: bool,
    large: bool,
) -> dict[int, dict[str, AnyHeld]]:
    if large:
        return probe_sampled(load, tensors, mesh.device_ids, exact)
    run = probe_in_processes if processes else probe
    found = run(load, tensors, mesh.device_ids, exact)
    return {device: dict(buffers) for device, buffers in found.items()}


def _unlike_the_sample(
    learned: Learned, load: Load, tensors: Mapping[str, LogicalTensor]
) -> Iterator[str]:
    """Yield a finding for each buffer whose layout, fitted to the sample, is wrong elsewhere;
    drop these layouts."""
    if not learned.layouts:
        return
    stored = Stored(learned.mesh, learned.tensors, learned.layouts, learned.dtype, partial=True)
    for name, rows in differences(load, tensors, stored, learned.dtype):
        yield f"{name} {rows} hold values that differ from {learned.layouts.pop(name)}"


def read_ranks(ranks: object) -> Mesh:
    """Return the mesh of ranks given as a count, as a list, or as a mesh."""
    given = ranks
    if isinstance(ranks, int) and not isinstance(ranks, bool):
        ranks = range(ranks)
    if isinstance(ranks, Sequence) and not isinstance(ranks, str):
        if not ranks or not all(isinstance(each, int) for each in ranks):
            raise InputError(
                "ranks must be a count, a sequence of ranks or a mesh",
                argument="ranks",
                got=in_a_line(given),
                expected="8, range(8), or 'dp=2,tp=4'",
            )
        return Mesh({AXIS: len(ranks)}, ranks)
    return mesh_of(ranks, "ranks")


def _of(buffers: Mapping[str, AnyHeld], name: str, shapes: Shapes) -> AnyHeld:
    if name in buffers:
        return buffers[name]
    rank = max(1, *map(len, shapes.values()))
    nothing = np.zeros((0,))
    index = np.zeros((0, rank), dtype=np.int64)
    return HeldBuffer(nothing.astype(np.int64), index, nothing, nothing, nothing)


def _tensors(layout: BufferLayout) -> set[str]:
    parts = layout.parts if isinstance(layout, Stack) else (layout,)
    return {part.tensor for part in parts}


def _findings(learned: Learned) -> Iterator[str]:
    ranks: dict[tuple[str, str], list[int]] = {}
    mixed = dict(_of_other_ranks(learned))
    yield from mixed.values()
    for device, buffers in learned.held.items():
        for name, held in buffers.items():
            if name not in learned.layouts and name not in mixed:
                for place, said in _odd(name, held, learned.tensors):
                    by = ", by a sample" * (not isinstance(held, HeldBuffer))
                    ranks.setdefault((place, said + by), []).append(device)
    for (place, said), devices in ranks.items():
        yield f"{place} of {_of_ranks(devices, learned)} {said}"
    every = [*{name: None for buffers in learned.held.values() for name in buffers}]
    if learned.sampled and {*every} > {*learned.layouts}:
        return  # a sample does not tell which elements the other buffers have
    for tensor in learned.tensors:
        missing = learned.missing(tensor, every)
        if missing is not None:
            yield f"{missing} on no rank"


def _of_other_ranks(learned: Learned) -> Iterator[tuple[str, str]]:
    first: dict[str, tuple[int, tuple[int, ...]]] = {}
    for device, buffers in learned.held.items():
        for name, held in buffers.items():
            before, shape = first.setdefault(name, (device, held.shape))
            if len(shape) != len(held.shape):
                where = f"{shape} on rank {before} and {held.shape} on rank {device}"
                yield name, f"the number of dimensions of {name} differs between ranks: {where}"


def _of_ranks(devices: list[int], learned: Learned) -> str:
    if len(devices) == len(learned.held) > 1:
        return "all ranks"
    return f"rank{'s' * (len(devices) > 1)} {', '.join(map(str, devices))}"


def _odd(name: str, held: AnyHeld, shapes: Shapes) -> Iterator[tuple[str, str]]:
    """Yield the ranges of a buffer that no layout can describe, each with a description of its
    contents, along the dimension with the fewest such ranges."""
    found, pads = [], False
    for dim in range(max(1, len(held.shape))):
        blocks = [(block, _why(block, shapes)) for block in blocks_of(held, shapes, dim)]
        pads = pads or any(block.tensor == PADDING for block, _ in blocks)
        along = named(dim, len(held.shape))
        odd = [(f"{name} {along} {b.start} to {b.stop}", why) for b, why in blocks if why]
        if odd:
            found.append(odd)
    order = "elements in no known order" if held.has_elements else "values of no tensor"
    if pads and held.has_elements:
        order = (
            "padding, and elements in an order that no layout with padding has; load them "
            "without padding to learn their order"
        )
    yield from min(found, key=len, default=[(name, f"holds {order}")])


def _why(block: HeldBlock, shapes: Shapes) -> str:
    """Describe the contents of a block that no part of a layout can have; "" for any other
    block."""
    if block.tensor in (UNKNOWN, SCATTERED) or (block.times, block.plus) != (1, 0):
        return f"hold {called(block, None, shapes)}"
    if all(loops(add) is not None for add in block.adds):
        return ""
    dims = range(len(block.base))
    orders = {dim: order_of(block, dim) for dim in dims}
    moved = next(dim for dim in dims if (np.diff(orders[dim]) != 1).any())
    return f"hold {block.tensor} {named(moved, len(dims))} {listed(orders[moved])}"


def _ranges(tensor: str, lacking: npt.NDArray[np.bool_]) -> str:
    """Describe the missing elements of a tensor: as ranges along the first dimension that can
    express them, else by their count and the first missing element."""
    for dim in range(lacking.ndim):
        others = tuple(axis for axis in range(lacking.ndim) if axis != dim)
        line: npt.NDArray[np.bool_] = np.asarray(lacking.all(axis=others))
        if (lacking == np.expand_dims(line, others)).all():
            ends = np.flatnonzero(np.diff(np.concatenate([[0], line, [0]]).astype(np.int8)))
            pairs = zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True)
            said = ", ".join(f"{low} to {high}" for low, high in pairs)
            return f"{tensor} {named(dim, lacking.ndim)} {said} are"
    first = tuple(np.argwhere(lacking)[0].tolist()) if lacking.ndim else ()
    return f"{int(lacking.sum()):,} elements of {tensor}, the first {first}, are"


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _source(load: Load) -> tuple[str, dict[str, str]]:
    """Return the location of a loader, MODULE:FUNCTION, and the versions of the packages that it
    may use."""
    module = getattr(load, "__module__", None) or "__main__"
    name = getattr(load, "__qualname__", type(load).__name__)
    root = module.split(".")[0]
    own = _distributions().get(root, [])
    used = (each for each in _VERSIONED if each in sys.modules)
    imported = [name for each in used for name in _distributions().get(each, [each])]
    versions = {}
    for each in dict.fromkeys([*own, *imported]):
        try:
            versions[each] = metadata.version(each)
        except metadata.PackageNotFoundError:
            continue
    return f"{module}:{name}", versions
