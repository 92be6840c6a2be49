"""What the modules beside this folder have in common: one text for all, by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with those that were emitted.
"""

from runpy import run_path

# Of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "10544506394dc58e",
    "pallas_tpu": "5e6ee39db7e7a8fd",
    "triton_gpu": "a63817c4ed12d95b",
}


# The features by which modules have functions that they may lack.
DOORS = {"reshard_done": "start", "reshard_dtensor": "dtensor", "reshard_start": "start"}
DOORS |= {"symmetric_result": "symmetric", "symmetric_source": "symmetric"}


def absent(module):
    """Return the `__getattr__` of a module, which says by which feature it has another function."""

    def missing(name):
        feature = DOORS.get(name)
        needs = f"needs the feature {feature}: emit with --feature {feature}"
        raise AttributeError(f"{module}.{name} {needs if feature else 'is not there'}")

    return missing


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other files than those here."""
    # This package may have been imported before the first module of the backend was written here.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
