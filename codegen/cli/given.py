"""The flags that `emit`, `verify`, `compile`, `show`, `plan` and `measure` share."""

from dataclasses import dataclass
from typing import Annotated

import typer

from shardwright.codegen import registry
from shardwright.codegen.spec.config import FILE, find_config, read_config
from shardwright.codegen.spec.features import (
    FEATURES,
)
from shardwright.ir.errors import InputError


def completed_names(incomplete: str) -> list[str]:
    """Return the names in the config that start with `incomplete`."""
    try:
        path = find_config()
        names = () if path is None else read_config(path).names()
    except InputError:  # the command itself reports the error
        return []
    return [name for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class GivenFlags:
    """A file and names in it, or the values of flags as strings. None means that a flag is
    absent."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [NAME]...",
            help="TOML file of [[reshard]] tables, whose keys are the flags with underscores "
            f"(default: {FILE} in this folder or its parents), and names of reshards or groups "
            "in it (default: all).",
            show_default=False,
            autocompletion=completed_names,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(help="Name of the bundle, a Python identifier; picks one reshard of FILE."),
    ] = None
    mesh: Annotated[
        str | None,
        typer.Option(help="""Axes and sizes, major to minor: x=2,y=3 or '<["x"=2, "y"=3]>'."""),
    ] = None
    shape: Annotated[str | None, typer.Option(help="Shape of the tensor: 6x6.")] = None
    dtype: Annotated[str | None, typer.Option(help="Element type: float32, bfloat16, int8, …")] = (
        None
    )
    source: Annotated[
        str | None,
        typer.Option(help="""Sharding before: '[{"x"}, {"y"}]', or in HLO's notation."""),
    ] = None
    target: Annotated[str | None, typer.Option(help="Sharding after.")] = None
    target_mesh: Annotated[
        str | None, typer.Option(help="Mesh of the target, if it is not the source's.")
    ] = None
    source_split: Annotated[
        str | None,
        typer.Option(help="How an uneven source is split: flat (default) or nested, like torch."),
    ] = None
    target_split: Annotated[str | None, typer.Option(help="How an uneven target is split.")] = None
    backends: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(registry.NAMES)}; separate by commas (default: the first two).",
            autocompletion=lambda: list(registry.NAMES),
        ),
    ] = None
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How to move the tensor: auto (default), direct or basis.",
            autocompletion=lambda: ["auto", "direct", "basis"],
        ),
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            help="Hardware to plan for: v5e:4x4, h100:2x8, …, or a file. Device "
            "ids are JAX's: they count along the first axis of a torus first, and host by host."
        ),
    ] = None
    memory_limit: Annotated[
        str | None, typer.Option(help="Bytes of the tensor that a device may hold at once.")
    ] = None
    gradient: Annotated[
        bool | None,
        typer.Option(
            "--gradient",
            help="Also emit gradients: the reverse reshard, a second module for each backend.",
            show_default=False,
        ),
    ] = None
    single_file: Annotated[
        bool | None,
        typer.Option(
            "--single-file",
            help="Include the support modules in each module, so that it can be copied alone.",
            show_default=False,
        ),
    ] = None
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            metavar="NAME",
            help=f"Extra features of the modules: {', '.join(FEATURES)}; may be repeated.",
            show_default=False,
            autocompletion=lambda: list(FEATURES),
        ),
    ] = None
    collective_id: Annotated[
        str | None,
        typer.Option(
            help="Multiple of 4 that no other kernel of a TPU program uses (default: derived from "
            "the description)."
        ),
    ] = None

    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Print neither progress nor successes.",
            show_default=False,
        ),
    ] = False
