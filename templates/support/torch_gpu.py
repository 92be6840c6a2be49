"""The host of an emitted reshard: it checks what it is given, launches the kernel, moves shards.

One address space (`reshard_local`): a launch a device, which pulls the tiles of its target shard
out of the source shards. Processes of a group (`reshard`): `torch_processes.py` says how.
"""

import functools
import math

import torch

from .boxes import extents, volume
from .torch_check import self_check
from .torch_local import NO_GRADIENT, Together
from .torch_tensors import LINE, UNITS, check, check_few, has_kernels, on, requires_grad, table


class Reshard:
    """One emitted reshard. `plan` and `said`: its hash and shardings. `gradient`: what moves
    gradients, if anything. `empty`: what terms without a value hold. `features`: by name, what
    the module has besides."""

    reduces = False  # whether terms become one value

    def __init__(
        self, shape, dtype, plan, said, exchange, kernel, tiles, gradient=None, empty=0, features=()
    ):
        self.shape, self.dtype, self.empty_value = shape, getattr(torch, dtype), empty
        self.itemsize, self.gradient, self.features = self.dtype.itemsize, gradient, dict(features)
        self.exchange, self.kernel, self.tiles = exchange, kernel, tiles
        self.source_bytes = self.itemsize * volume(exchange.source.box(0))  # no shard is larger
        self.plan = f"plan {plan} ({said})"
        self.here = Together((self,), self.puller)

    @functools.cached_property
    def processes(self):
        """What is done among the processes of a group."""
        from .torch_processes import Processes  # when it is used

        return Processes((self,), self.plan, self.puller, features=self.features)

    @property
    def phases(self):
        """The reshards that are done one after another: this one."""
        return (self,)

    def source_shape(self, device_id):
        """Return the exact shape of the source shard on a device."""
        source = self.exchange.source
        return self._shape(source.box(source.position(device_id, "source")))

    def target_shape(self, device_id):
        """Return the exact shape of the target shard on a device."""
        target = self.exchange.target
        return self._shape(target.box(target.position(device_id, "target")))

    def _shape(self, box):
        # A scalar is moved as a vector of one element.
        return extents(box)[len(self.exchange.hidden) :][: len(self.shape)]

    def empty(self, device_id, home):
        """Return memory for the target shard of a device, None outside the target mesh."""
        if self.exchange.target_position(device_id) < 0:
            return None
        return torch.empty(self.target_shape(device_id), dtype=self.dtype, device=home)

    def reshard_local(self, shards, *, out=None, programs=None):
        """Return the target shards, from source shards that one address space holds.

        `shards`: contiguous tensors of shape `source_shape(id)`, sorted by device id of the source
        mesh. Returns tensors of shape `target_shape(id)`, sorted by device id of the target mesh,
        each on the device of the source shard of its id, else of the first position's: those of
        `out` where given, else new ones. One launch a device, on its current stream. To capture
        that in a CUDA graph, call it once before with the same tensors. `programs`: see `reshard`.
        The gradient, where there is one, is the reverse reshard: where target shards have replicas,
        all must get the same. Raises ValueError for a wrong number of shards, a wrong shape, dtype
        or device, and for shards that require a gradient where there is none.
        """
        shards = list(shards)
        check_few(programs)
        if not requires_grad(shards):
            return self.here.local([shards], [out], programs)[0]
        if out is not None:
            raise ValueError("out takes no gradient: got source shards that require one")
        if self.gradient is None:
            raise ValueError(NO_GRADIENT)
        return self.gradient.reshard_local(self, shards, programs)

    def by_position(self, shards):
        """Return source shards, which come sorted by device id, in the order of the source mesh."""
        ids = self.exchange.source.ids
        if len(shards) != len(ids):
            raise ValueError(f"got {len(shards)} source shards, expected {len(ids)}")
        held = dict(zip(sorted(ids), shards, strict=True))
        for device_id, shard in held.items():
            self.check_source(shard, device_id)
        return [held[device_id] for device_id in ids]

    def check_source(self, shard, device_id):
        """Raise ValueError for what is no source shard of a device, with what may make it one."""
        shape, what = self.source_shape(device_id), f"source shard of device {device_id}"
        if tuple(getattr(shard, "shape", shape)) != shape:
            from .torch_told import part_of  # when it is used

            what += part_of(self, device_id, len(shape))
        check(shard, shape, self.dtype, what)

    def results(self, by_position, out):
        """Return the tensors to fill, by device id: those of `out` where given, else new ones."""
        ids, first = sorted(self.exchange.target.ids), by_position[0]
        held = dict(zip(self.exchange.source.ids, by_position, strict=True))
        homes = [held.get(device_id, first).device for device_id in ids]
        if out is not None:
            from .torch_out import checked  # when it is used

            return checked(self, list(out), ids, homes, by_position)
        return [self.empty(*each) for each in zip(ids, homes, strict=True)]

    def places(self, device_id):
        """Return the positions that the kernel is launched with on a device: in the target mesh,
        and in the source mesh too where it has a use for that."""
        target, source = self.exchange.target_position, self.exchange.source_position
        return [target(device_id), *([source(device_id)] * ("me" in self.kernel.arg_names))]

    def puller(self, addresses, outs, device_id, programs=None):
        """Return a function that fills a target shard of a device, like that of `outs`, from source
        shards at these addresses: one launch, of so many programs at most. On a CPU outside
        Triton's interpreter the kernel plays no part, and is not proved by it."""
        (out,) = outs
        if not has_kernels(out, self.kernel):
            return self.processes.listed_puller(addresses, outs, device_id, programs)
        if not out.numel():
            return lambda outs: None
        if self.exchange.is_empty(self.exchange.target_position(device_id)):
            return lambda outs: outs[0].fill_(self.empty_value)
        launch = self.launcher(self.kernel, self.tiles, addresses[0], out, programs)
        places = self.places(device_id)
        return lambda outs: launch(*outs, *places)

    def launcher(self, kernel, tiles, addresses, shard, programs):
        """Return a function that launches a kernel which moves so many tiles between a shard and
        those at some addresses. It takes a shard, and positions."""
        start = math.gcd(LINE, *addresses, shard.data_ptr()) // self.itemsize or 1
        block = tiles.block(start)
        number, options = block.number, {}
        if programs is not None and programs < number:
            from .torch_few import few  # when it is used

            block, number, options = few(tiles, start, programs)
        prepared = functools.partial(kernel[(number,)], **options)
        if "remembered" in self.features:
            prepared = self.features["remembered"].launch(kernel, number, **options)
        with on(shard.device):
            peers = table(addresses, shard.device)

        def run(shard, *places):
            with on(shard.device):
                prepared(peers, self.units(shard, block), *places, block)

        return run

    def units(self, out, block):
        """Return a target shard as the kernel takes it."""
        return out.view(-1).view(UNITS[block.width * self.itemsize])

    def before(self, out):
        """Return the memory that what a device receives is unpacked into; `after` fills the target
        shard `out` from that."""
        return out

    def after(self, unpacked, out):
        """Fill a target shard from what was unpacked: it is that itself."""

    def reshard(self, shard, group=None, *, out=None, **asked):
        """Return this device's target shard, exchanged with the other processes of a group.

        `asked` are `transport=None`, `check=False`, `programs=None` and `async_op=False`. Rank r is
        the r-th id of the sorted union of both meshes. `shard` is None on a rank outside the source
        mesh; the result is None on a rank outside the target mesh. Every process of the group calls
        this, all with the same `transport`:

            "symmetric"  all GPUs on one host, or on hosts that share memory by fabric handles:
                         peers read each other's shards, in one launch a device. What others
                         get of the shard is copied to symmetric memory first, unless it is there
                         already, or they write: see `symmetric_source`, `symmetric_result`.
            "exchange"   tiles are packed, exchanged by `all_to_all_single`, and unpacked; where
                         the bytes of each are together in source or target shards they go by
                         `batch_isend_irecv`, and nothing is packed there, or unpacked.
            None         the first of these that every rank can take; a warning says why not
                         "symmetric" where GPUs cannot share memory, on one host or on several, or
                         the process has set another backend of symmetric memory than CUDA.

        The first call with a group compares the ranks' plans, shards and hosts: what is wrong on
        one rank is an error on every one. Later calls do so if `check`; else a wrong shard is an
        error on its own rank, and the others fail with the transport, which may take its time-out.
        Calls of a group are numbered: where a rank goes on after such an error, its calls are
        errors, as are those of the ranks that it exchanges with, until all make one with `check`.
        On GPUs, for which the host does not wait, that ends the process.

        A launch has one program per block, or at most `programs`. These go through all blocks in
        turn, each with four times the threads, so the call takes at most `programs`
        multiprocessors. With `async_op` the call returns a handle whose `wait()` returns the target
        shard. Until then do not write the shard or use `out`. On a GPU the call runs on its own
        stream, and `wait` makes the current stream wait for it. The next call with the group waits
        for it too.

        The result is `out` where given. Otherwise it is new, on the shard's device; without a
        shard, on the current GPU if the group uses NCCL, else on the CPU. All runs on the current
        stream, of which a group has one. To capture it in a CUDA graph, call it once before with
        the same tensors. The gradient, where there is one, is that of the reverse reshard, where
        both meshes have the same devices; all ranks ask for it or none. Raises ValueError for a
        group of another size, a wrong shard or out, a shard that requires a gradient where there is
        none, and ranks that do not agree; RuntimeError, which names rank and plan, where the
        transport fails.
        """
        from .torch_processes import reshard_among  # when it is used

        return reshard_among(self, shard, group, out, asked)

    def _bits(self):
        """Return how many bits of the numbers of elements, from 1 on, one pass moves, and all
        have."""
        size = 1 if self.dtype == torch.bool else 8 * self.itemsize
        return size, max(math.prod((*self.exchange.hidden, *self.shape)), 1).bit_length()

    def turns(self):
        """Return how many examples it takes that no two elements are alike in all."""
        size, bits = self._bits()
        return -(-bits // size)

    def example(self, turn, home):
        """Return a tensor of numbers before and after, with hidden dimensions."""
        shape, (size, _) = self.exchange.held(self.shape or (1,)), self._bits()
        number = torch.arange(math.prod(shape), device=home) + 1
        number = number >> turn % self.turns() * size
        if size == 1:
            tensor = (number & 1).bool()
        else:
            units = number.view(torch.uint8).view(-1, 8)[:, : self.itemsize]
            tensor = units.contiguous().view(-1).view(self.dtype)
        return tensor.view(shape), tensor.view(shape)

    def self_check(self):
        """Return what is right about this module; exit with what is wrong."""
        return self_check(self.here, self.features.get("check_exchange"))
