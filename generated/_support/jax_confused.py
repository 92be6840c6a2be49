"""Refuse meshes in which logical ids do not match devices one to one."""


def refuse_confused(source, target):
    """Raise ValueError for the first logical id that names two devices, or device that has two
    ids. `source`, `target`: pairs of ids and devices, by position."""
    by_id = dict(zip(*source, strict=True))
    for device_id, device in zip(*target, strict=True):
        if by_id.setdefault(device_id, device) != device:
            raise ValueError(
                f"logical id {device_id}: got {by_id[device_id]} in the source mesh and {device} "
                "in the target mesh, expected the same device"
            )
    ids: dict = {}
    for device_id, device in by_id.items():
        if ids.setdefault(device, device_id) != device_id:
            both = f"{device} for both logical ids {ids[device]} and {device_id}"
            raise ValueError(f"target_mesh: got {both}, expected two devices")
