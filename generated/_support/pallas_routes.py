"""Check that the devices of a mesh are TPUs, and that a v5e can send directly to receivers."""

import numpy as np

from .pallas_reach import are_near, is_v5e, refuse_far
from .ranks import end_ranks


def check_routes(program, devices):
    """Raise ValueError if devices, given by rank, are not TPUs, or if a v5e cannot send directly to
    a receiver of a program."""
    if devices[0].platform != "tpu":
        got = f"mesh: got devices of platform {devices[0].platform}, expected TPUs"
        more = "interpret=True runs the kernels slowly; a jax_xla module runs on any platform"
        raise ValueError(f"{got}; {more}")
    if is_v5e(devices):  # other TPUs send over any distance
        for carrier in program.carriers:
            check_pairs(carrier, devices)


def pairs_of(program):
    """Return the ranks of a program's senders and receivers as arrays."""
    senders, receivers = end_ranks(program.moves)
    sources, targets = program.moves.source.ids, program.moves.target.ids
    ends = [
        (senders[piece.sender], receivers[piece.receiver])
        for sender in range(len(senders))
        for piece in program.moves.outgoing(sender)
        if sources[piece.sender] != targets[piece.receiver]
    ]
    return np.array(ends, int).reshape(-1, 2).T


def check_pairs(program, devices):
    """Raise ValueError if a sender of a program cannot send directly to its receiver on a v5e.
    `devices`: the devices by rank."""
    sender, receiver = program.pairs() if program.pairs else pairs_of(program)
    # whether the module expects a device order that makes all offsets powers of two
    powers_of_two = program.powers_of_two
    # whether a module can also be emitted for the order of `devices`
    again = tuple(program.host.source.ids) == tuple(program.host.target.ids)
    direct = are_near(devices, sender, receiver)
    if not powers_of_two:
        topology = "emit the module with a topology, such as v5e:2x4, to forward tiles"
        refuse_far(direct, topology)
    if not powers_of_two or direct.all():
        return
    wrong = int(np.argmin(direct))
    a, b = devices[int(sender[wrong])], devices[int(receiver[wrong])]
    ids = [device.id for device in devices]
    order = f"; or a module emitted for this order, device_ids={ids}"
    raise ValueError(
        f"mesh: device {a.id} at {tuple(a.coords)} must send to device {b.id} at "
        f"{tuple(b.coords)}, which a v5e cannot do directly; {(~direct).sum()} of the "
        f"{direct.size} pairs of devices that exchange data are too far apart; expected: "
        "devices in an order that fills a torus of power-of-two extents axis by axis, "
        "so that they send over 1, 2, 4, ... hops along one axis" + order * again
    )
