"""`shardwright measure`: time emitted modules on this machine and compare with the cost model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.folders import FolderFlags
from shardwright.codegen.cli.progress import bar
from shardwright.codegen.cli.tables import console
from shardwright.codegen.cli.written import check_writable, written
from shardwright.codegen.hardware.presets import file_text, name_of
from shardwright.codegen.spec.fields import split_backends
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.codegen.operations.bundles.measure import Measured, Measurement

_FLAGS = {"backends": "--backends", "topology": "--topology"}


@dataclass(frozen=True, kw_only=True)
class MeasureCommand(FolderFlags):
    """Measure emitted modules on the devices of this machine, and fit a topology to them.

    Prints predicted and measured seconds per call, and the best-fitting topology figures; `--save`
    writes these to a file that `--topology` reads. Each result is compared with the oracle before
    its module is timed. `--topology` names the hardware unless it is a CPU, H100 or H200. The
    environment sets the number of CPU devices: XLA_FLAGS=--xla_force_host_platform_device_count=8.
    Exit code 1 if a result is wrong, 2 if nothing is measured.

    Example: shardwright measure generated --backends jax_xla --save here.toml
    """

    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the fitted topology to this TOML file."),
    ] = None

    @property
    def beside(self) -> tuple[str, ...]:
        """The options that may be combined with bundles."""
        return ("name", "backends", "topology")

    def run(self) -> None:
        """Print the measured time of each module, and the fitted figures."""
        if self.save is not None:
            _check(self.save)
        chosen = None if self.backends is None else split_backends(self.backends)
        try:
            with self.folders() as folders:
                found = _measured(folders, chosen, self.topology)
        except InputError as error:
            raise error.named(_FLAGS.get(error.argument or "", error.argument)) from None
        if not self.quiet:
            _print(found)
        for each in found.modules:
            if each.detail:
                print(f"{each.name} {each.backend}: {each.verdict}: {each.detail}")
        if self.save is not None:
            written(self.save, file_text(found.fit.topology), "--save")
        if any(each.verdict == "failed" for each in found.modules):
            raise typer.Exit(1)


def _check(path: Path) -> None:
    """Raise InputError for a path that cannot be written, or whose name `--topology` would not
    read."""
    if path.suffix != ".toml":
        raise InputError(
            "a topology must be saved as a TOML file",
            argument="--save",
            got=str(path),
            expected=f"{path.with_suffix('.toml')}",
        )
    check_writable(path, "--save")


def _measured(
    folders: tuple[Path, ...], backends: tuple[str, ...] | None, topology: str | None
) -> "Measurement":
    from shardwright.codegen.operations.bundles.measure import measure

    with bar("measuring") as show:

        def progress(done: int, total: int, module: "Measured | None") -> None:
            last = "" if module is None else f"{module.name} {module.backend}: {module.verdict}"
            show(done, total, last)

        return measure(folders, backends, topology, progress)


def _print(found: "Measurement") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("bundle", "backend")
    for column in ("devices", "measured, us", "predicted, us", "ratio", "fitted, us", "ratio"):
        table.add_column(column, justify="right")
    for each in found.measured:
        row = [escape(each.name), each.backend, str(each.devices), f"{each.seconds * 1e6:,.1f}"]
        for topology in (found.topology, found.fit.topology):
            predicted = each.sample.price(topology)
            row += [f"{predicted * 1e6:,.1f}", f"{predicted / each.seconds:.2f}"]
        table.add_row(*row)
    console().print(table)
    count = len(found.measured)
    print(f"predicted on {name_of(found.topology)}; fitted to {count} module{'s'[: count != 1]}:")
    for figure in found.fit.figures:
        before, after = (
            f"{value:.4g}" if value else "none" for value in (figure.before, figure.after)
        )
        said = f"{before}, kept" if before == after else f"{before} -> {after}"
        print(f"  {figure.name}: {said}" + (f": {figure.note}" if figure.note else ""))
