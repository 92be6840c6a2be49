"""The reshard `gpt2_vocab_uneven`. README.md says what it moves, plan.json lists every transfer.

`reshard` is in the module of each backend: pallas_tpu, triton_gpu, jax_xla.
"""

import pathlib

if "." not in __name__:
    raise ImportError(
        f"{__name__} is part of a package: start in the folder above that of the bundles, "
        f"and import FOLDER.{__name__}"
    )
if not pathlib.Path(__file__).parent.with_name("_support").is_dir():
    raise ImportError(
        f"{__name__} needs the folder _support beside its own: copy that too, "
        "or emit with --single-file"
    )
