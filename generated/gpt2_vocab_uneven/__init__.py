"""One reshard: README.md describes it, plan.json has its plan."""

import pathlib

if "." not in __name__:
    raise ImportError(f"part of a package: import FOLDER.{__name__} from above FOLDER")
if not pathlib.Path(__file__).parent.with_name("_support").is_dir():
    raise ImportError(f"{__name__} needs _support next to it: copy it, or emit with --single-file")
