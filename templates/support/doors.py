"""Error messages that name the feature which would add a missing function to a module."""

DOORS = {"reshard_done": "start", "reshard_dtensor": "dtensor", "reshard_start": "start"}
DOORS |= {"symmetric_result": "symmetric", "symmetric_source": "symmetric"}


def absent(module, name):
    """Return the AttributeError for a name that a module lacks. If a feature adds the function of
    that name, the message names that feature."""
    feature = DOORS.get(name)
    needs = f'needs features=("{feature}",) in emit (--feature {feature})'
    return AttributeError(f"{module}.{name} {needs if feature else 'does not exist'}")
