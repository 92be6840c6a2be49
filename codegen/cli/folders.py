"""Commands that work on bundles on disk, on a config, or on a reshard described by flags."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.spec.config import FILE
from shardwright.ir.errors import InputError


@dataclass(frozen=True, kw_only=True)
class FolderFlags(Flags):
    """Arguments of commands that take folders of bundles, a config, or the flags of a reshard."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [DIR|NAME]...",
            help="Folders that `emit` wrote, or bundles in them; or a TOML file of tables "
            f"(default: {FILE} in this folder or its parents) and names of reshards or groups "
            "in it.",
            show_default=False,
        ),
    ] = None

    @property
    def beside(self) -> tuple[str, ...]:
        return ("name", "backends")

    @property
    def file(self) -> Path | None:
        first = Path(self.words[0]) if self.words else None
        listed = first is not None and (first.is_file() or first.suffix in (".toml", ".json"))
        return first if listed else None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The arguments that are folders, because they exist or have more than one path
        component."""
        words = map(Path, (self.words or [])[0 if self.file is None else 1 :])
        return tuple(each for each in words if each.is_dir() or len(each.parts) > 1)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in super().names if Path(name) not in self.paths)

    @property
    def by_config(self) -> bool:
        """Whether a config describes at least one selected operation."""
        return not self.described and bool(self.names or self.file or not self.paths)

    @contextlib.contextmanager
    def folders(self) -> Iterator[tuple[Path, ...]]:
        """Yield the selected roots and bundles. A reshard described by flags is emitted into a
        temporary folder."""
        if self.described:
            with tempfile.TemporaryDirectory(prefix="shardwright-") as folder:
                yield (self._emitted(Path(folder) / "generated"),)
            return
        found = list(self.paths)
        if self.by_config:
            out, chosen = self.config.out, self.config.select(self.names)
            found += [out / chosen.folder(name) for name in self.names] or [out]
        yield tuple(found)

    def _emitted(self, root: Path) -> Path:
        from shardwright.codegen.operations.emit.reshard import emit_described

        description = self.from_flags(name="reshard")
        try:
            bundle = emit_described(description)
        except InputError as error:
            raise self.located(error, description.name) from None
        bundle.write(root / description.name)
        return root / description.name
