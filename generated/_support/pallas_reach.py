"""The direct routes of a TPU v5e: a power of two of hops along one axis.

Source: JAX's guide to distributed Pallas kernels, "Routing".
"""

import os
import warnings

import numpy as np

# If this environment variable is set, transfers that a v5e cannot send directly only cause a
# warning.
FAR = "SHARDWRIGHT_FAR_SENDS"


def is_v5e(devices):
    """Return whether devices are v5e chips, which send directly over some offsets only."""
    return all("v5 lite" in device.device_kind for device in devices)


def are_near(devices, sender, receiver):
    """Return, for each pair of ranks, whether they are a power of two of hops apart along one
    axis; `devices`: the devices by rank."""
    coords = np.array([device.coords for device in devices])
    hops = np.abs(coords[sender] - coords[receiver])
    # an axis of 16 wraps around
    hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
    return ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)


def refuse_far(near, advice):
    """Raise ValueError with `advice` if `near` is false for some pairs of devices; only warn if
    `FAR` is set."""
    if near.all():
        return
    far = (
        f"a v5e cannot send directly between {(~near).sum()} of the {near.size} pairs of devices "
        f"that exchange data: {advice}"
    )
    if not os.environ.get(FAR):
        raise ValueError(f"mesh: {far}; {FAR}=1 in the environment makes this a warning")
    warnings.warn(far, stacklevel=3)
