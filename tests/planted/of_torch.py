"""Faults of the Triton modules, and of the support that they run on."""

from __future__ import annotations

from .fault import Fault


def _torch(bundle: str, file: str, right: str, wrong: str, said: str) -> Fault:
    return Fault("triton_gpu", bundle, file, right, wrong, said)


VALUES, NOBODY, WAITS = (
    "elements are wrong",
    "accesses memory that belongs to no tensor",
    "waits for a signal that never comes",
)
ORDER = "without waiting for what"

TORCH = {
    # What is packed, kept and unpacked in an exchange.
    "packed by the first item size": _torch(
        "both", "torch_wire.py",
        "size, held = self.moves[number].itemsize", "size, held = self.moves[0].itemsize", "",
    ),
    "all ranks of a group read one shard first": _torch(
        "both", "torch_processes.py", "(piece.sender - first) % positions", "piece.sender",
        "wrong order of tiles",
    ),
    "kept in the first result": _torch(
        "both", "torch_wire.py", ".itemsize, number, number)", ".itemsize, number, 0)", "",
    ),
    "unpacked into the first result": _torch(
        "both", "torch_wire.py",
        "entries_of(box, box, into, size, 0, number, start)",
        "entries_of(box, box, into, size, 0, 0, start)", "",
    ),
    "sent from elsewhere in the shard": _torch(
        "order", "torch_wire.py",
        "first = first * (end - begin) + low - begin", "first = first * (end - begin) + low", "",
    ),
    "an empty term left as it is": _torch(
        "terms", "torch_wire.py", "out.fill_(move.empty_value)", "pass", "",
    ),
    "received and not waited for": _torch(
        "turn", "torch_processes.py", "                    work.wait()\n",
        "                    pass\n", "",
    ),
    # What is remembered of calls.
    "calls remembered when the workspace grows": _torch(
        "turn", "torch_symmetric.py",
        "            self.workspace = placed(lambda: symmetric(size, home), group)\n"
        "            self._forget()\n",
        "            self.workspace = placed(lambda: symmetric(size, home), group)\n", WAITS,
    ),
    "calls remembered when tensors are offered": _torch(
        "turn", "torch_symmetric.py",
        "        self._forget()\n        self.offered", "        self.offered", WAITS,
    ),
    "calls remembered when there is a symmetric source": _torch(
        "turn", "torch_memory.py", '            kept["calls"].clear()\n', "", WAITS,
    ),
    "calls known by their source alone": _torch(
        "turn", "torch_remembered.py",
        "    for tensor in (*shards, *outs):", "    for tensor in shards:", "",
    ),
    # Symmetric memory.
    "memory without its offset": _torch(
        "turn", "torch_symmetric.py",
        "address(held) - handle.buffer_ptrs[dist.get_rank(group)]", "0", NOBODY,
    ),
    "pushed before others expect it": _torch(
        "turn", "triton_gpu.py",
        "place.meet(number)  # no rank still reads the old results", "pass", ORDER,
    ),
    "read before others have pushed": _torch(
        "turn", "triton_gpu.py", "place.meet(number)  # all pushed tiles have arrived", "pass", "",
    ),
    "pushed to the first target shard": _torch(
        "swap", "triton_gpu.py", "shard_at(peers, receiver,", "shard_at(peers, 0,", "pushed",
    ),
    "all tensors staged at the start": _torch(
        "both", "torch_peers.py",
        "                start = self.starts[number]\n", "                start = 0\n", VALUES,
    ),
    "two calls at once": _torch(
        "turn", "torch_processes.py",
        "                under_way.wait()\n", "                pass\n", ORDER,
    ),
    "another stream that waits for nobody": _torch(
        "turn", "torch_async.py",
        "            side.wait_stream(torch.cuda.current_stream(home))\n", "", ORDER,
    ),
    # One address space.
    "members that share memories": _torch(
        "both", "torch_processes.py",
        "piece.sender), positions * number + piece.sender\n",
        "piece.sender), piece.sender\n", VALUES,
    ),
    "the size of another dtype": _torch(
        "apart", "torch_gpu.py",
        "self.itemsize, self.gradient, self.features = self.dtype.itemsize,",
        "self.itemsize, self.gradient, self.features = 4,", "",
    ),
    "the last term alone": _torch(
        "summed", "torch_reduce.py", "total += term", "total = term", VALUES,
    ),
    # DTensors, gradients, groups.
    "placements of the source for the result": _torch(
        "swap", "triton_gpu.py",
        "DTensors(_HOST, (0, 1), (1, 0),", "DTensors(_HOST, (0, 1), (0, 1),",
        "does not hold the elements of",
    ),
    "placements of a backward": _torch(
        "back", "triton_gpu_backward.py",
        "DTensors(_HOST, (1,), (0,),", "DTensors(_HOST, (1,), (1,),",
        "does not hold the elements of",
    ),
    "a replicated result of a sum": _torch(
        "summed", "triton_gpu.py", '("sum",), (None,)', '("sum",), ("sum",)', "partial",
    ),
    "gradients that are not moved": _torch(
        "back", "torch_gradient.py",
        "return [self.reverse.reshard(*gradients, group, **how._asdict())]",
        "return [0 * self.reverse.reshard(*gradients, group, **how._asdict())]",
        "the derivative",
    ),
    "results in the order of names": _torch(
        "both", "torch_group.py",
        "by_place = dict(zip(places, leaves, strict=True))", "by_place = leaves", "",
    ),
    # Kernels.
    "rows as far apart as in the target": _torch(
        "turn", "triton_rows.py",
        "    at = row * in_units(read_row, block, BLOCK, BLOCK.lanes) + column\n",
        "    at = row * in_units(write_row, block, BLOCK, BLOCK.lanes) + column\n", VALUES,
    ),
    "listed rows as far apart as in the target": _torch(
        "turn", "triton_listed.py",
        "read_row, write_row = tl.load(entry + 6),",
        "read_row, write_row = tl.load(entry + 7),", VALUES,
    ),
    "a block a program, of more blocks": _torch(
        "turn", "triton_listed.py",
        "for place in range(tl.program_id(0), number, tl.num_programs(0)):",
        "for place in range(tl.program_id(0), tl.num_programs(0), tl.num_programs(0)):", VALUES,
    ),
    "an offset by the stride of the source": _torch(
        "turn", "triton_listed.py",
        "write += (low - to_low) * write_stride", "write += (low - to_low) * read_stride", "",
    ),
    "half an offset": _torch(
        "apart", "triton_gpu.py", "write=from0 * 2,", "write=from0,", VALUES,
    ),
    "a term left out": _torch(
        "summed", "triton_gpu.py", "tl.static_range(4)", "tl.static_range(3)", VALUES,
    ),
    "tiles of the device itself": _torch(
        "swap", "triton_gpu.py",
        '."""\n    return [receiver % 2 * 2 + receiver // 2]', '."""\n    return [receiver]', "",
    ),
    "support of a tensor too large to run": _torch(
        "large", "triton_rows.py",
        "    write = in_units(write, block, BLOCK, BLOCK.lanes)\n    return read + at,",
        "    write = in_units(write, block, BLOCK, BLOCK.lanes) * 0\n    return read + at,", "",
    ),
    # Matmuls.
    "told at the place of another device": _torch(
        "product", "torch_member.py",
        "told = [places[name] + 4 * position for name", "told = [places[name] + 4 * name for name",
        "",
    ),
    "a place that counts from the start": _torch(
        "product", "matmul_parts.py",
        "found = found * (high - low) + index - low", "found = found * (high - low) + index", "",
    ),
    "operands of the call before": _torch(
        "product", "triton_gpu.py",
        "read += tl.cast(epoch & 1, tl.int64) *", "read += 0 *", "",
    ),
    "cotangents of a group that are not made": _torch(
        "product", "torch_cotangents.py",
        "found = [first.matmul(*c_bar, *b, group), second.matmul(*a, *c_bar, group)]",
        "found = [0 * first.matmul(*c_bar, *b, group), second.matmul(*a, *c_bar, group)]",
        "the cotangent of lhs",
    ),
    "one matrix of a group's ranks": _torch(
        "scattered", "torch_ranks.py",
        "position = host.order[dist.get_rank(group)]",
        "position = host.order[0]", "",
    ),
}  # fmt: skip
"""By name; `said` is part of what `verify` says, the empty string where that may differ."""
