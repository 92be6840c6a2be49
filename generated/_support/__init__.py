"""Support shared by the modules in sibling folders, written by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with a new emission.
"""

from runpy import run_path

# Versions of the files that the modules of a backend use.
VERSIONS = {
    "jax_xla": "4896c11da4b4b217",
    "pallas_tpu": "9b20f0502d095902",
    "triton_gpu": "d65eead848773b33",
}


def require(backend, version, module):
    """Raise ImportError for a module that was emitted with other support files."""
    # This package may have been imported before the backend's first module was written.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"beside it is {found}: emit it again"
        )
