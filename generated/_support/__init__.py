"""Support shared by the modules in sibling folders, written by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with a new emission.
"""

from runpy import run_path

# Versions of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "300acdd10e1fcf4b",
    "pallas_tpu": "6b19acaf9321956a",
    "triton_gpu": "fe359195c238b26e",
}


# The features that add optional functions to modules.
DOORS = {"reshard_done": "start", "reshard_dtensor": "dtensor", "reshard_start": "start"}
DOORS |= {"symmetric_result": "symmetric", "symmetric_source": "symmetric"}


def absent(module):
    """Return the `__getattr__` of a module, which names the feature of a missing function."""

    def missing(name):
        feature = DOORS.get(name)
        needs = f"needs the feature {feature}: emit with --feature {feature}"
        raise AttributeError(f"{module}.{name} {needs if feature else 'is not there'}")

    return missing


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other support files."""
    # This package may have been imported before the backend's first module was written.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
