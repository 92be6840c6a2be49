"""Support shared by the modules in sibling folders, written by `shardwright emit`.

`shardwright check` and `shardwright verify` compare the files here with a new emission.
"""

from runpy import run_path

# The version of each backend's support files.
VERSIONS = {
    "jax_xla": "89900a20de0aba33",
    "pallas_tpu": "24fecbfefb230f2f",
    "triton_gpu": "c4a32583165833e8",
}


def require(backend, version, module):
    """Raise ImportError if a module needs a different version of the support files."""
    # This package may have been imported before the backend's first module was written.
    found = VERSIONS.get(backend) or run_path(__file__)["VERSIONS"].get(backend, "none")
    if found != version:
        raise ImportError(f"{module} needs _support {version}, found {found}: emit it again")
