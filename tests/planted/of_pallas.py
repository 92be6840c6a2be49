"""Faults of the Pallas modules, and of the support that they run on."""

from __future__ import annotations

from .fault import Fault


def _pallas(bundle: str, file: str, right: str, wrong: str, said: str) -> Fault:
    return Fault("pallas_tpu", bundle, file, right, wrong, said)


PALLAS = {
    "its own columns for every receiver": _pallas(
        "tiles", "pallas_tpu.py",
        "in_x = (0, peer * ", "in_x = (0, me * ", "",
    ),
    "nothing waits for what comes": _pallas(
        "tiles", "pallas_tpu.py", "    wait_for(y, received)", "    pass", "",
    ),
    "sent before the receiver is there": _pallas(
        "tiles", "pallas_tpu.py", "each(4, hear)\n    for", "for", "",
    ),
    "a wait for too few that leave": _pallas(
        "tiles", "pallas_tpu.py", "tile = tile_at(y, (0, 0), TILE)", "tile = y.at[pl.ds(0, 4)]", "",
    ),
    "an end that does not wait": _pallas(
        "tiles", "pallas_tpu.py",
        '`held`."""\n    _wait(y, sent, received)\n', '`held`."""\n    pass\n', "",
    ),
    "a start without its tiles": _pallas(
        "tiles", "pallas_started.py",
        "            return held[0]\n", "            return 0 * held[0]\n", "reshard_start",
    ),
    "told to the rank of a target": _pallas(
        "apart", "pallas_tpu.py",
        "signal(barrier, PEERS.source_rank(", "signal(barrier, PEERS.target_rank(", "",
    ),
    "tiles that share a place in the staging area": _pallas(
        "wide", "pallas_tpu.py", " - (shard[0] - met[0]) * 8", "", "",
    ),
    "chunks that are no whole units": _pallas(
        "wide", "pallas_tpu.py", "    chunk=(24, 256),", "    chunk=(20, 256),", "",
    ),
    "a staging area too small": _pallas(
        "wide", "pallas_tpu.py", "    stage=(80, 256),", "    stage=(64, 256),", "",
    ),
    "tiles that share a slot": _pallas(
        "turn", "pallas_tpu.py",
        "there = slot_number(source_shard(me),", "there = slot_number(piece.shard,", "",
    ),
    "a slot without its last granule": _pallas(
        "turn", "pallas_tpu.py", "div(size + 127, 128)", "div(size, 128)", "",
    ),
    "a term left out of a sum": _pallas(
        "summed", "pallas_terms.py",
        "for number in range(1, count):", "for number in range(1, count - 1):", "",
    ),
    "a group that does not wait for what leaves": _pallas(
        "both", "pallas_tpu.py", "        leave(number, pl.ds(*blocks))\n", "        pass\n", "",
    ),
    "a group that does not wait for what comes": _pallas(
        "both", "pallas_tpu.py", "        come(number, pl.ds(*blocks))\n", "        pass\n", "",
    ),
    "the part after": _pallas(
        "ring", "pallas_tpu.py", "rem(place + ", "rem(place + 1 + ", "",
    ),
    "multiplied before it has come": _pallas(
        "ring", "pallas_tpu.py",
        "pltpu.make_async_copy(half, half, recv.at[block.way, block.step - 1]).wait()",
        "pass", "",
    ),
}  # fmt: skip
"""By name; `said` is part of what `verify` says."""
