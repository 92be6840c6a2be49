"""Advice on the order of devices in a mesh."""


def in_order_of_ids(devices, near):
    """Return advice to make a mesh whose devices ascend by id, as the module assumes; "" if they
    already do, or if `near` is false for some devices in that order."""
    ids = [device.id for device in devices]
    if ids == sorted(ids) or not near(sorted(devices, key=lambda device: device.id)).all():
        return ""
    return (
        f"the mesh has the ids {ids}, and the module needs {sorted(ids)}: give it "
        "jax.sharding.Mesh(np.reshape(sorted(jax.devices(), key=lambda d: d.id), "
        "mesh.devices.shape), mesh.axis_names)"
    )
