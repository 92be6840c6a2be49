"""Error messages that name the feature which would add a missing function to a module."""

DOORS = {"reshard_done": "start", "reshard_dtensor": "dtensor", "reshard_start": "start"}
DOORS |= {"symmetric_result": "symmetric", "symmetric_source": "symmetric"}


def absent(module):
    """Return a `__getattr__` for a module, which raises AttributeError. If a feature adds the
    missing function, the message names that feature."""

    def missing(name):
        feature = DOORS.get(name)
        needs = f'needs features=("{feature}",) in emit (--feature {feature})'
        raise AttributeError(f"{module}.{name} {needs if feature else 'does not exist'}")

    return missing
