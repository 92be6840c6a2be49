"""The host of an emitted matmul: memory that peers read, kernel tables, launches, streams.

All devices are in one address space (`matmul_local`), or each belongs to one process of a group
(`matmul`), in which rank r has the r-th of the sorted device ids. `torch_ranks` handles processes.
"""

import copy
import functools
import itertools
import math
import operator
from typing import NamedTuple

import torch
import triton

from .matmul_parts import Parts
from .torch_member import Member
from .torch_tensors import check, has_kernels, requires_grad

NO_COTANGENTS = (
    "an operand requires a gradient, but this module has none: emit it with gradient=True "
    "(--gradient), or call it in torch.no_grad()"
)
ALIGNED = 128  # alignment of slots in bytes
MOST_FLOPS = 2**24  # a self-check with more operations uses smaller matrices
FEW_EACH = 5  # the rows or columns of each shard of smaller matrices


class TritonMatmul:
    """One emitted matmul. `name`: the name of the module; `said`: its plan as text, which must
    agree on all ranks; `ids`: the device ids by position; `boxes`: functions from a position to its
    box of lhs, rhs, the result and the product; `kernels`: the kernels of the module; `slots`: the
    number of elements of a slot for offered operands, the start of rhs in it, and the number of
    elements of a slot for result terms; `unit`: the number of elements that `pull` copies as one;
    `blocks`: the block sizes of i, k and j; `warps`, `stages`: the Triton options of `multiply`;
    `described`: whether TMA can copy operand blocks; `terms`: functions for lhs, rhs and the
    result, or None (see `Parts`); `operators`: the operators that combine these terms; `overlap`:
    whether to multiply while parts arrive; `cotangents`: a `Cotangents`, None if not emitted.
    `polls`: the number of polls after which a kernel gives up. `tma`: False loads operand blocks
    through pointers even if TMA could copy them."""

    polls = 100_000_000
    tma = True

    def __init__(
        self, name, said, shapes, dtypes, ids, boxes, kernels, *, slots, blocks, warps, stages,
        unit=1, described=False, terms=(None, None, None), operators=("sum", "sum", "sum"),
        overlap=True, cotangents=None,
    ):  # fmt: skip
        self.name, self.said, self.shapes, self.cotangents = name, said, shapes, cotangents
        self.dtype, self.out_dtype = (getattr(torch, each) for each in dtypes)
        self.ids, self.boxes, self.batch = list(ids), boxes, len(shapes[0]) - 2
        self.kernels = {kernel.__name__: kernel for kernel in kernels}
        self.slots, self.unit, self.described = slots, unit, described
        self.blocks, self.options = blocks, {"num_warps": warps, "num_stages": stages}
        self.terms, self.operators, self.overlap = terms, operators, overlap

    @functools.cached_property
    def parts(self):
        """Return the parts that devices exchange."""
        return Parts(len(self.ids), self.boxes, self.batch, self.terms)

    def shape(self, side, position):
        """Return the exact shape of a shard of lhs (side 0), rhs (1) or the result (2). For an
        unreduced side it is the shape of one term."""
        box = self.boxes[side](position)[-2 * (self.batch + 2) :]
        return tuple(map(operator.sub, box[1::2], box[::2]))

    @property
    def layout(self):
        """Return the byte layout of each device's shared memory: the start of the offered operands
        (after flags and counters), the start of the sums, and the end."""
        offered = _up(12 * len(self.ids), ALIGNED)
        summed = offered + _up(2 * self.slots[0] * self.dtype.itemsize, ALIGNED)
        return offered, summed, summed + 2 * self.slots[2] * self.out_dtype.itemsize

    def matmul_local(self, lhs, rhs):
        """Return the shards of the result, given the shards of both operands in one address space.
        Lists are sorted by device id; tensors are on GPUs, or all on the CPU in the interpreter. If
        emitted with gradients it is differentiable; replicas of a result must get equal gradients.
        Raises ValueError for wrong shards."""
        lhs, rhs = list(lhs), list(rhs)
        if len(lhs) != len(self.order) or len(rhs) != len(self.order):
            expected = f"expected {len(self.order)} of each"
            raise ValueError(f"got {len(lhs)} shards of lhs, {len(rhs)} of rhs, {expected}")
        if requires_grad([*lhs, *rhs]):
            return list(self._with_gradient(None, *lhs, *rhs))
        return self.call_local(lhs, rhs)

    @torch.no_grad()
    def call_local(self, lhs, rhs):
        for position, *given in zip(self.order, lhs, rhs, strict=True):
            self.check(given, position)
        homes = [each.device for each in lhs]
        if several := len({*homes}) > 1:
            from .torch_several import join_streams  # imported on first use

            join_streams({*homes})
        members = self._local(tuple(homes))
        # If one GPU runs several devices, none may wait for a later launch.
        overlap = self.overlap and len({*homes}) == len(homes)
        calls = [
            members[position].steps(a, b, overlap=overlap)
            for position, a, b in zip(self.order, lhs, rhs, strict=True)
        ]
        for steps in zip(*calls, strict=True):
            results = [step() for step in steps]
        for member in members:
            member.ended()
        if several:
            join_streams({*homes})
        return results

    @functools.cached_property
    def order(self):
        """Return the positions in the order of device ids."""
        return sorted(range(len(self.ids)), key=lambda position: self.ids[position])

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def _local(self, homes):
        """Return a `Member` for each position, in one address space; `homes`: the torch devices in
        order of device ids."""
        home, size = dict(zip(self.order, homes, strict=True)), self.layout[-1]
        every = range(len(self.ids))
        held = [torch.zeros(size, dtype=torch.uint8, device=home[place]) for place in every]
        places = [each.data_ptr() for each in held]
        return [Member(self, position, held[position], places) for position in every]

    def matmul(self, a, b, group=None):
        """Return this rank's shard of the product, given its shards of both operands.

        Every process of the group must call it, on one stream per group; no call ends before all
        peers have begun it. To capture it in a CUDA graph, call it once before. Raises ValueError
        for a wrong shard or group and, on GPUs, on every rank if one has set a symmetric memory
        backend other than CUDA; RuntimeError, naming the waiting rank and its peer, if a peer does
        not call: on GPUs in `synchronize` or the next call. After a failed call the group accepts
        no other.
        """
        group = self.ranks.group(group)
        if requires_grad([a, b]):
            return self._with_gradient(group, a, b)[0]
        return self.ranks.call(a, b, group)

    def _with_gradient(self, group, *given):
        if self.cotangents is None:
            raise ValueError(NO_COTANGENTS)
        return self.cotangents.multiplied(self, group, *given)

    def synchronize(self, group=None):
        """Wait for the calls of a group. Raises RuntimeError if any of them failed."""
        self.ranks.synchronize(group)

    @functools.cached_property
    def ranks(self):
        """Return the `MultiplyingRanks` for calls in process groups."""
        from .torch_ranks import MultiplyingRanks  # imported on first use

        return MultiplyingRanks(self)

    def check(self, given, position):
        """Raise ValueError for wrong operand shards of the device at a position."""
        for side, (name, tensor) in enumerate(zip(("lhs", "rhs"), given, strict=True)):
            what = f"{name} of device {self.ids[position]}"
            check(tensor, self.shape(side, position), self.dtype, what)
            if not has_kernels(tensor, self.kernels["multiply"]):
                fault = "got a tensor on the CPU, expected one on a GPU; to run on a CPU, set"
                raise ValueError(f"{what}: {fault} TRITON_INTERPRET=1 before triton is imported")
        if given[0].device != given[1].device:
            both = f"{given[0].device} and {given[1].device}"
            raise ValueError(
                f"operands of device {self.ids[position]}: got {both}, expected the same device"
            )

    def self_check(self):
        """Multiply random numbers twice and return the facts checked. Exit on a fault."""
        flops = 2 * math.prod(self.shapes[0]) * self.shapes[1][-1]
        if flops <= MOST_FLOPS:
            return self._check()
        small = self._scaled()
        shapes = " by ".join(map(str, small.shapes[:2]))
        return f"{small._check()}, with shapes scaled down to {shapes}"

    def _check(self):
        flops = 2 * math.prod(self.shapes[0]) * self.shapes[1][-1]
        home = "cpu" if not isinstance(self.kernels["multiply"], triton.JITFunction) else "cuda"
        for turn in range(2):
            whole = [
                torch.randint(
                    -3, 4, shape, generator=torch.Generator().manual_seed(2 * turn + side)
                )
                for side, shape in enumerate(map(self._array, range(2)))
            ]
            given = [
                [
                    _shard(x, self.boxes[side](p)).view(self.shape(side, p)).to(home, self.dtype)
                    for p in self.order
                ]
                for side, x in enumerate(whole)
            ]
            a, b = (self._value(side, x) for side, x in enumerate(whole))
            results = [each.cpu() for each in self.matmul_local(*given)]
            self._check_results(results, (a @ b).to(self.out_dtype).double())
        return f"{flops} flops done twice, every element of the product right"

    def _scaled(self):
        """Return this matmul scaled down to small matrices. Shard ends keep their proportions, and
        stay multiples of the same fraction of a block: if the small boxes tile the tensors, so do
        the large ones, and the kernels' assumptions about ends are preserved."""
        *lead, i, j, k = range(self.batch + 3)
        along = [[*lead, i, j], [*lead, j, k], [*lead, i, k], [*lead, i, j, k]]
        ends: list[set] = [set() for _ in range(self.batch + 3)]
        for box, dims in zip(self.boxes, along, strict=True):
            for position, (place, dim) in itertools.product(self.order, enumerate(dims)):
                first = 2 * (place - len(dims))
                ends[dim] |= {*box(position)[first : first + 2 or None]}
        rows, columns, depth = self.blocks
        blocks = [*(1 for _ in lead), rows, depth, columns]
        times = [*(1 for _ in lead), 1, 2, 1]  # two blocks along j, for loops over it to run on
        by = [_Scale.of(*each) for each in zip(ends, blocks, times, strict=True)]
        small = copy.copy(self)
        small.__dict__.pop("parts", None)
        sizes = [each.end(each.whole) for each in by]
        small.shapes = tuple(tuple(sizes[dim] for dim in dims) for dims in along[:3])
        small.boxes = [
            functools.partial(_scaled_box, box, [by[dim] for dim in dims])
            for box, dims in zip(self.boxes, along, strict=True)
        ]
        return small

    def _check_results(self, results, wanted):
        """Exit if results are wrong after all their terms are combined."""
        array = torch.zeros(self._array(2), dtype=torch.float64)
        for position, found in zip(self.order, results, strict=True):
            part = _part(self.boxes[2](position))
            array[part] = found.double().view_as(array[part])
        value, within = self._value(2, array), 0.05 * self.out_dtype.is_floating_point
        far = (value - wanted).abs() > within * (1 + wanted.abs())
        for position, found in zip(self.order, results, strict=True):
            box = self.boxes[2](position)
            same = found.double().equal(array[_part(box)].view(found.shape))
            if not same or far[_part(box[-2 * wanted.dim() :])].any():
                raise SystemExit(f"device {self.ids[position]}: wrong product")

    def _array(self, side):
        """Return the shape of the whole array of a side. The dimension of terms, if any, comes
        first."""
        ends = [self.boxes[side](position)[1::2] for position in self.order]
        return [max(each) for each in zip(*ends, strict=True)]

    def _value(self, side, array):
        """Return the tensor that an array represents, with terms reduced if it has any."""
        if array.dim() == len(self.shapes[side]):
            return array
        return {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[self.operators[side]](
            array, 0
        )


def _shard(tensor, box):
    return tensor[_part(box)].contiguous()


class _Scale(NamedTuple):
    """A dimension of `whole` elements scaled down to `units` units of `unit` elements; `unit`
    divides all shard ends."""

    whole: int
    unit: int
    units: int

    @classmethod
    def of(cls, ends, block, blocks):
        """Return the scale for these ends, this block size and so many blocks a shard."""
        whole, granule = max(ends), math.gcd(*ends)
        unit = math.gcd(granule, block)
        few = FEW_EACH * len(ends) + 1 if unit < FEW_EACH else blocks * (len(ends) - 1)
        return cls(whole, unit, min(whole // unit, few))

    def end(self, end):
        return end // self.unit * self.units // (self.whole // self.unit) * self.unit


def _scaled_box(box, by, position):
    """Return the box at a position with its last ranges scaled down. The ranges before them
    number terms."""
    ends = box(position)
    first = len(ends) - 2 * len(by)
    scales = (each for each in by for _ in range(2))
    return (*ends[:first], *(s.end(end) for end, s in zip(ends[first:], scales, strict=True)))


def _part(box):
    return tuple(slice(*ends) for ends in zip(box[::2], box[1::2], strict=True))


def _up(size, unit):
    return -(-size // unit) * unit
