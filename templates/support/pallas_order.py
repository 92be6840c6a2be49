"""The check that devices can send to their neighbours in a ring, and advice about their order."""

import numpy as np

from .pallas_reach import are_near, is_v5e, refuse_far


def check_ring(ring, devices):
    """Raise ValueError if devices, given by position, are not TPUs, or if a v5e cannot send
    directly to its neighbour in a `RingMatmul`."""
    if devices[0].platform != "tpu":
        got = f"mesh: got devices of platform {devices[0].platform}, expected TPUs"
        raise ValueError(f"{got}, or interpret=True to run slowly without them")
    if is_v5e(devices):

        def near(order):
            return are_near(order, np.arange(len(order)), ring.table()[:, 1])

        advice = in_order_of_ids(devices, near) or "emit with the topology of these devices"
        refuse_far(near(devices), advice)


def in_order_of_ids(devices, near):
    """Return advice to make a mesh whose devices ascend by id, as the module assumes; "" if they
    already do, or if that would not help. `near`: a function from devices to an array that
    states for each send whether a v5e can make it directly."""
    ids = [device.id for device in devices]
    if ids == sorted(ids) or not near(sorted(devices, key=lambda device: device.id)).all():
        return ""
    return (
        f"the mesh has devices in the order {ids}, the module needs {sorted(ids)}: pass "
        "jax.sharding.Mesh(np.reshape(sorted(jax.devices(), key=lambda d: d.id), "
        "mesh.devices.shape), mesh.axis_names)"
    )
