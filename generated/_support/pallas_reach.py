"""Which devices a TPU v5e sends to directly: those over a power of two of hops along one axis.

Source: JAX's guide to distributed Pallas kernels, "Routing".
"""

import os
import warnings

import numpy as np

# Where this variable of the environment is set, what a v5e does not send directly is sent all the
# same, with a warning.
FAR = "SHARDWRIGHT_FAR_SENDS"


def are_near(devices, sender, receiver):
    """Return whether each of some ranks sends to another over a power of two of hops along one
    axis; `devices`: by rank."""
    coords = np.array([device.coords for device in devices])
    hops = np.abs(coords[sender] - coords[receiver])
    # An axis of 16 wraps around.
    hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
    return ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)


def refuse_far(near, advice):
    """Raise ValueError where a v5e does not send directly between some pairs of devices; only warn
    of them where `FAR` is set."""
    if near.all():
        return
    far = (
        f"{(~near).sum()} of {near.size} pairs of devices are at offsets that a v5e does not send "
        f"over directly: {advice}"
    )
    if not os.environ.get(FAR):
        raise ValueError(f"mesh: {far}; with {FAR}=1 in the environment this is a warning")
    warnings.warn(far, stacklevel=3)
