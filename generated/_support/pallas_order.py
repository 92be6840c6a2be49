"""Advice on the order of devices in a mesh."""


def in_order_of_ids(devices, near):
    """Return advice to make a mesh whose devices ascend by id, as the module assumes; "" if they
    already do, or if that would not help. `near`: a function from devices to an array that says of
    each send whether a v5e can make it directly."""
    ids = [device.id for device in devices]
    if ids == sorted(ids) or not near(sorted(devices, key=lambda device: device.id)).all():
        return ""
    return (
        f"the mesh has the ids {ids}, and the module needs {sorted(ids)}: give it "
        "jax.sharding.Mesh(np.reshape(sorted(jax.devices(), key=lambda d: d.id), "
        "mesh.devices.shape), mesh.axis_names)"
    )
