"""Support shared by the modules in sibling folders, written by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with a new emission.
"""

from runpy import run_path

# The version of each backend's support files.
VERSIONS = {
    "jax_xla": "41a9442229d6aa1e",
    "pallas_tpu": "0c58a08c33c3a797",
    "triton_gpu": "0ac9be1f535f55ba",
}


def require(backend, version, module):
    """Raise ImportError if a module needs a different version of the support files."""
    # This package may have been imported before the backend's first module was written.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(
            f"{module} was emitted with version {version} of the support modules of {backend}, "
            f"but `_support` next to it has version {found}: emit the module again"
        )
