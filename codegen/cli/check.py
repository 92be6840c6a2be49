"""`shardwright check`: compare the files on disk with a new emission."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.folders import FolderFlags
from shardwright.codegen.cli.progress import bar

if TYPE_CHECKING:
    from shardwright.codegen.operations.bundles.check import Problem, Progress


@dataclass(frozen=True, kw_only=True)
class CheckCommand(FolderFlags):
    """Compare the config, the manifest and the files of bundles.

    Exit code 1 if anything differs: a table was edited or added and not emitted, the table of a
    bundle is gone, or a file differs from a new emission. FILE may also be a file written by
    `shardwright learn`: its loader runs again, and elements that it now stores elsewhere are
    printed. Loaders of the files listed under `learned` in the config run again too.

    Example: shardwright check generated
    """

    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder of the bundles (default: `out` of FILE, or generated).",
            show_default=False,
        ),
    ] = None

    @property
    def beside(self) -> tuple[str, ...]:
        return ("name",)

    def run(self) -> None:
        """Print each problem with its diff."""
        from shardwright.codegen.learn.again import is_learned

        if self.file is not None and is_learned(self.file):
            if not self._learned(self.file):
                raise typer.Exit(1)
            return
        problems: list[Problem] = []
        where: list[str] = []
        with bar("checking") as show:
            for place, found in self._found(lambda done, total: show(done, total, "")):
                where.append(str(place))
                problems += found
        for problem in problems:
            print(problem)
        everything = self.by_config and not self.names
        layouts = self.config.learned if everything else ()
        moved = [path for path in layouts if not self._learned(path)]
        if problems or moved:
            raise typer.Exit(1)
        if not self.quiet:
            print(f"{', '.join(where)}: identical to a new emission")

    def _learned(self, path: Path) -> bool:
        """Run a file's loader again and print the elements that it now stores elsewhere. Return
        whether there are none."""
        from shardwright.codegen.learn.again import learn_again

        again = learn_again(path, "" if path == self.file else str(path.parent))
        if not (self.quiet and again.same):
            print(again)
        return again.same

    def _found(self, progress: "Progress") -> "Iterator[tuple[Path, tuple[Problem, ...]]]":
        """Yield each checked folder or bundle with its problems."""
        from shardwright.codegen.operations.bundles.check import check, check_config

        for path in () if self.described else self.paths:
            yield path, check(path, progress)
        if self.described or self.by_config:
            said = self.chosen if self.described else self.config
            some = self.described or self.names
            names = said.select(self.names).names() if some else None
            root = self.output or said.out
            yield root, check_config(said, root, names, progress)
