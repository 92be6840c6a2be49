"""Functions that features add to modules."""

DOORS = {"reshard_done": "start", "reshard_dtensor": "dtensor", "reshard_start": "start"}
DOORS |= {"symmetric_result": "symmetric", "symmetric_source": "symmetric"}


def absent(module):
    """Return a `__getattr__` for a module. Its AttributeError names the feature that adds the
    missing function."""

    def missing(name):
        feature = DOORS.get(name)
        needs = f"needs the feature {feature}: emit with --feature {feature}"
        raise AttributeError(f"{module}.{name} {needs if feature else 'does not exist'}")

    return missing
