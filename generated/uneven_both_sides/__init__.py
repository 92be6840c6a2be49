"""One reshard: README.md describes it, plan.json has its plan."""

import pathlib

if "." not in __name__:
    raise ImportError(f"import FOLDER.{__name__}, not {__name__}: the module is part of a package")
if not pathlib.Path(__file__).parent.with_name("_support").is_dir():
    raise ImportError(f"{__name__} needs the folder _support: copy it, or emit with --single-file")
