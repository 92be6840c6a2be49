"""The host of an emitted reshard, which checks arguments and launches the kernel.

In one address space (`reshard_local`), one launch on each device pulls the tiles of its target
shard from the source shards. `torch_processes.py` handles the processes of a group (`reshard`).
"""

import functools
import math

import torch

from .boxes import extents
from .gaps import volume
from .torch_check import self_check
from .torch_local import NO_GRADIENT, Together
from .torch_tensors import LINE, UNITS, check, check_few, has_kernels, on, requires_grad, table


class Reshard:
    """One emitted reshard. `plan`: the hash of its plan; `said`: its shardings as text; `gradient`:
    a `Gradient`, None if not emitted; `empty`: the value of missing terms; `features`: the optional
    parts of the module, by name."""

    reduces = False  # whether terms are reduced to one value

    def __init__(
        self, shape, dtype, plan, said, exchange, kernel, tiles, gradient=None, empty=0, features=()
    ):
        self.shape, self.dtype, self.empty_value = shape, getattr(torch, dtype), empty
        self.itemsize, self.gradient, self.features = self.dtype.itemsize, gradient, dict(features)
        self.exchange, self.kernel, self.tiles = exchange, kernel, tiles
        # upper bound on the bytes of any shard
        self.source_bytes = self.itemsize * volume(exchange.source.box(0))
        self.plan = f"plan {plan} ({said})"
        self.here = Together((self,), self.puller)

    @functools.cached_property
    def processes(self):
        """Return the `Processes` that reshard among the processes of a group."""
        from .torch_processes import Processes  # imported on first use

        return Processes((self,), self.plan, self.puller, features=self.features)

    @property
    def phases(self):
        """Return the reshards to run in sequence: this one."""
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
        # A scalar moves as a vector of one element.
        return extents(box)[len(self.exchange.hidden) :][: len(self.shape)]

    def empty(self, device_id, home):
        """Return uninitialized memory for a device's target shard, None outside the target mesh."""
        if self.exchange.target_position(device_id) < 0:
            return None
        return torch.empty(self.target_shape(device_id), dtype=self.dtype, device=home)

    def reshard_local(self, shards, *, out=None, programs=None):
        """Return the target shards, given source shards in one address space.

        `shards`: contiguous tensors of shape `source_shape(id)`, sorted by device id of the source
        mesh. Returns the tensors of `out` if given, else new tensors: of shape `target_shape(id)`,
        sorted by device id of the target mesh, each on the device of the source shard with the same
        id or, if there is none, of the shard at the first source position. Makes one launch per
        device, on its current stream. To capture the launches in a CUDA graph, call it once before
        with the same tensors. `programs`: see `reshard`. The gradient, if emitted, is the reverse
        reshard; replicas of a target shard must get equal gradients. Raises ValueError for a wrong
        number of shards, a wrong shape, dtype or device, and for shards that require a gradient if
        none was emitted.
        """
        shards = list(shards)
        check_few(programs)
        if not requires_grad(shards):
            return self.here.local([shards], [out], programs)[0]
        if out is not None:
            raise ValueError("out does not support gradients: omit it, or detach the source shards")
        if self.gradient is None:
            raise ValueError(NO_GRADIENT)
        return self.gradient.reshard_local(self, shards, programs)

    def by_position(self, shards):
        """Check source shards, given by ascending device id, and return them by position."""
        ids = self.exchange.source.ids
        if len(shards) != len(ids):
            raise ValueError(f"got {len(shards)} source shards, expected {len(ids)}")
        held = dict(zip(sorted(ids), shards, strict=True))
        for device_id, shard in held.items():
            self.check_source(shard, device_id)
        return [held[device_id] for device_id in ids]

    def check_source(self, shard, device_id):
        """Raise ValueError for a wrong source shard of a device; for a wrong shape, the message
        states which part of the tensor belongs there."""
        shape, what = self.source_shape(device_id), f"source shard of device {device_id}"
        if tuple(getattr(shard, "shape", shape)) != shape:
            from .torch_told import part_of  # imported on first use

            what += part_of(self, device_id, len(shape))
        check(shard, shape, self.dtype, what)

    def results(self, by_position, out):
        """Return the tensors to fill, by ascending device id: the tensors of `out` if given,
        else new tensors."""
        ids, first = sorted(self.exchange.target.ids), by_position[0]
        held = dict(zip(self.exchange.source.ids, by_position, strict=True))
        homes = [held.get(device_id, first).device for device_id in ids]
        if out is not None:
            from .torch_out import checked  # imported on first use

            return checked(self, list(out), ids, homes, by_position)
        return [self.empty(*each) for each in zip(ids, homes, strict=True)]

    def places(self, device_id):
        """Return the positions passed to a device's kernel: in the target mesh, and in the source
        mesh if the kernel uses it."""
        target, source = self.exchange.target_position, self.exchange.source_position
        return [target(device_id), *([source(device_id)] * ("me" in self.kernel.arg_names))]

    def puller(self, addresses, outs, device_id, programs=None):
        """Return a function that fills a device's target shard, shaped like the shard in `outs`,
        from source shards at these addresses, in one launch of at most `programs` programs. On a
        CPU outside Triton's interpreter torch copies instead of the kernel."""
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
        """Return a function of a shard and positions that launches a kernel to move `tiles` between
        that shard and the shards at these addresses."""
        start = math.gcd(LINE, *addresses, shard.data_ptr()) // self.itemsize or 1
        block = tiles.block(start)
        number, options = block.number, {}
        if programs is not None and programs < number:
            from .torch_few import few  # imported on first use

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
        """View a shard as a vector of the kernel's units."""
        return out.view(-1).view(UNITS[block.width * self.itemsize])

    def before(self, out):
        """Return the memory into which a device unpacks data; `after` then fills the target shard
        `out`."""
        return out

    def after(self, unpacked, out):
        """Fill a target shard from the unpacked data: nothing to do here, where both are one
        tensor."""

    def reshard(self, shard, group=None, *, out=None, **asked):
        """Return this device's target shard, exchanged with the other processes of a group.

        `asked`: `transport=None`, `check=False`, `programs=None` and `async_op=False`. Rank r is
        the r-th id of the sorted union of both meshes. `shard` is None on a rank outside the source
        mesh; the result is None on a rank outside the target mesh. Every process of the group must
        call this, with the same `transport`:

            "symmetric"  all GPUs on one host, or on hosts that share memory by fabric handles:
                         peers read each other's shards, in one launch per device. Parts that others
                         read are copied to symmetric memory first, unless the shard is there
                         already, or tiles are pushed: see `symmetric_source`, `symmetric_result`.
            "exchange"   tiles are packed, exchanged by `all_to_all_single`, and unpacked; if each
                         tile is contiguous in source or target shards, `batch_isend_irecv` sends it
                         without packing or unpacking at that end.
            None         the first of these that every rank supports; a warning says why not
                         "symmetric" if GPUs cannot share memory, or the process has set a symmetric
                         memory backend other than CUDA.

        The first call with a group compares the ranks' plans, shards and hosts: a fault on one rank
        is an error on every rank. With `check`, so do later calls; otherwise a wrong shard is an
        error on its own rank, and the other ranks fail with the transport, possibly after its
        time-out. Calls of a group are numbered: if a rank continues after such an error, its calls
        fail, as do those of its peers, until all ranks make a call with `check`. On GPUs, for which
        the host does not wait, such a failure ends the process.

        A launch has one program per block, or at most `programs`. If limited, the programs loop
        over all blocks, each with four times the threads, so the call uses at most `programs`
        multiprocessors. With `async_op` the call returns a handle whose `wait()` returns the target
        shard. Until then do not write the shard or use `out`. On a GPU the call runs on its own
        stream, and `wait` makes the current stream wait for it. The next call with the group waits
        for it too.

        The result is `out` if given. Otherwise it is new, on the shard's device; without a shard,
        on the current GPU if the group uses NCCL, else on the CPU. Work runs on the current stream;
        use one stream per group. To capture a call in a CUDA graph, make it once before with the
        same tensors. The gradient, if emitted, is the reverse reshard, which needs the same devices
        in both meshes; either all ranks require it or none. Raises ValueError for a wrong group
        size, a wrong shard or `out`, a shard that requires a gradient if none was emitted, and
        ranks that disagree; RuntimeError, naming rank and plan, if the transport fails.
        """
        from .torch_processes import reshard_among  # imported on first use

        return reshard_among(self, shard, group, out, asked)

    def _bits(self):
        """Return the number of bits of an element number that one example holds, and the number of
        bits of the largest element number. Element numbers start at 1."""
        size = 1 if self.dtype == torch.bool else 8 * self.itemsize
        return size, max(math.prod((*self.exchange.hidden, *self.shape)), 1).bit_length()

    def turns(self):
        """Return the number of examples after which no two elements have been equal in all of
        them."""
        size, bits = self._bits()
        return -(-bits // size)

    def example(self, turn, home):
        """Return two tensors of element numbers with hidden dimensions, before and after the
        reshard. `turn`: the index of the example, which selects bits of the element numbers."""
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
        """Check this module's transfers and return the facts checked. Exit on a fault."""
        return self_check(self.here, self.features.get("check_exchange"))
