"""`shardwright compare` and `shardwright learn`: where loaders store elements, and where two
loaders differ."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardwright.codegen.cli.written import check_writable
from shardwright.codegen.spec.references import loader as loader_at
from shardwright.codegen.spec.references import told
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.ir.stored import Stored

NUMBER = re.compile(r"-?\d+")
HELP = "TOML of a stored layout, as str(sw.Stored(…)) writes it; or MODULE:FUNCTION, a loader."

TensorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tensor", metavar="NAME=SHAPE", help="A logical tensor: q=32x16; may be repeated."
    ),
]
RanksOption = Annotated[
    str | None, typer.Option("--ranks", help="Number of ranks, or their mesh: 4, or dp=2,tp=4.")
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", help="Narrowest element type that loaders convert to (default: float32)."
    ),
]
LikeOption = Annotated[
    str, typer.Option("--like", help="Arrays to give the loader: numpy, torch or jax.")
]


def compare(
    found: Annotated[str, typer.Argument(metavar="FOUND", help=HELP)],
    expected: Annotated[str, typer.Argument(metavar="EXPECTED", help=HELP)],
    tensors: TensorOption = None,
    ranks: RanksOption = None,
    dtype: DtypeOption = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            help="Arrays to give loaders: numpy, torch or jax (default: from the file, or numpy).",
        ),
    ] = None,
    relayout: Annotated[
        bool,
        typer.Option(
            "--bytes", help="Print the bytes of a relayout from FOUND to EXPECTED instead."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print nothing if there is no difference.")
    ] = False,
) -> None:
    """Print where FOUND and EXPECTED store different elements, as named ranges.

    Exit code 1 if anything differs. --bytes prints the bytes that a relayout from FOUND to EXPECTED
    must move, in total and between devices. A loader runs on the tensors and ranks of the other
    side if that side is a file; two loaders need --tensor and --ranks.

    Example: shardwright compare my_loaders:convert server.toml
    """
    from shardwright.codegen.learn.again import learned_table, like_of
    from shardwright.codegen.learn.compare import compare as compared
    from shardwright.ir.relayout import Relayout, plan_relayout
    from shardwright.ir.stored import Stored

    sides = [_side(found, "FOUND"), _side(expected, "EXPECTED")]
    named = zip((found, expected), sides, strict=True)
    path, stored = next((each for each in named if isinstance(each[1], Stored)), (None, None))
    if relayout:
        for given, side in zip((found, expected), sides, strict=True):
            if not isinstance(side, Stored):
                raise InputError(
                    "both layouts must be files to count the bytes of a relayout",
                    argument="--bytes",
                    got=given,
                    expected=f"the file of shardwright learn {given} -o FILE",
                )
        try:
            print(plan_relayout(Relayout(*sides)))
        except InputError as error:
            raise _with_findings(error, (found, expected)) from None
        return
    if stored is None:
        _check_given(tensors, ranks)
    kind = like or ("numpy" if path is None else like_of(Path(path)))
    others = {} if path is None else learned_table(Path(path)).get("tensors", {})
    asked = _asked(tensors, ranks, dtype, kind, stored, others)
    pair = [each if isinstance(each, Stored) else told(each, kind) for each in sides]
    named = zip((found, expected), sides, strict=True)
    files = [given for given, side in named if isinstance(side, Stored)]
    try:
        comparison = compared(*pair, **asked)
    except InputError as error:
        raise _with_findings(error, files) from error.__cause__
    if not (quiet and comparison.same):
        print(comparison)
    if not comparison.same:
        raise typer.Exit(1)


def learn(
    loader: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function load(rank, tensors) of a module in this folder.",
        ),
    ],
    tensors: TensorOption = None,
    ranks: RanksOption = None,
    dtype: DtypeOption = None,
    like: LikeOption = "numpy",
    processes: Annotated[
        bool,
        typer.Option(
            "--processes",
            help="Run each rank in its own process, in a torch process group over gloo.",
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write (default: print).")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Do not list values that fit no layout.")
    ] = False,
) -> None:
    """Print the stored layout of a loader's buffers as TOML.

    The loader runs for every rank on tensors whose elements are all distinct. The layout is checked
    on every element; values that fit no layout are listed as findings, and the exit code is then 1.
    `shardwright check FILE` learns it again.

    Example: shardwright learn my_loaders:load --tensor q=32x16 --tensor k=8x16 --ranks tp=4
    """
    from shardwright.codegen.learn.learn import learn as learned

    _check_given(tensors, ranks)
    asked = _asked(tensors, ranks, dtype, like, None)
    if output is not None:
        check_writable(output, "--output")
    load = loader_at(loader, "MODULE:FUNCTION")
    result = learned(load if processes else told(load, like), **asked, processes=processes)
    if output is None:
        print(result)
    else:
        output.write_text(f"{result}\n", encoding="utf-8")
        for finding in () if quiet else result.findings:
            print(f"{output}: not learned: {finding}")
    if result.findings:
        raise typer.Exit(1)


def _check_given(tensors: list[str] | None, ranks: str | None) -> None:
    """Raise InputError unless flags say on which tensors and ranks to run loaders."""
    for option, value in (("--tensor", tensors), ("--ranks", ranks)):
        if not value:
            expected = {"--tensor": "--tensor q=32x16", "--ranks": "--ranks tp=4"}[option]
            raise InputError("missing", argument=option, expected=expected)


def _side(given: str, argument: str) -> Any:
    """Return the layout in a file, or a loader."""
    from shardwright.ir.stored import Stored

    if ":" in given and not Path(given).exists():
        return loader_at(given, argument)
    if not Path(given).exists() and "." in given and not given.endswith(".toml"):
        raise InputError(
            "neither a file nor a loader",
            argument=argument,
            got=given,
            expected=f"the file of a layout, or {':'.join(given.rsplit('.', 1))}",
        )
    return Stored.read(given)


def _with_findings(error: InputError, paths: Iterable[str]) -> InputError:
    """Add the findings in the files of learned layouts to an error."""
    from shardwright.codegen.learn.again import learned_table

    found = {path: learned_table(Path(path)).get("findings", ()) for path in paths}
    said = [f"{path} lacks a layout for: {'; '.join(each)}" for path, each in found.items() if each]
    expected = "; ".join(filter(None, (error.expected, *said)))
    again = InputError(error.rule, argument=error.argument, got=error.got, expected=expected)
    return again.within(error.text, error.span)


def _asked(
    tensors: list[str] | None,
    ranks: str | None,
    dtype: str | None,
    like: str,
    stored: "Stored | None",
    others: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the tensors, ranks and dtype with which to run loaders; `others`: the shapes of
    tensors that the layout lacks."""
    from shardwright.codegen.learn.logical import LogicalTensor
    from shardwright.ir.given import shape_of

    exact = dtype or (stored.dtype if stored is not None else "float32")
    shapes: dict[str, object] = {} if stored is None else {**stored.tensors, **others}
    own: dict[str, str] = {}
    for each in tensors or ():
        name, equals, shape = each.rpartition("=")
        if not equals:
            raise InputError(
                "a tensor must have a name and a shape",
                argument="--tensor",
                got=each,
                expected="q=32x16",
            )
        if name in own:
            raise InputError(
                "a tensor may be given only once",
                argument="--tensor",
                got=each,
                expected=f"{name}={own[name]} alone, or another name",
            )
        try:
            shape_of(shape)
        except InputError as error:
            raise error.named(f"--tensor {name}") from None
        own[name] = shape
    logical = {
        name: LogicalTensor.made(shape_of(shape), like, exact)
        for name, shape in {**shapes, **own}.items()
    }
    many: object = int(ranks) if ranks is not None and NUMBER.fullmatch(ranks) else ranks
    return {"logical": logical or None, "ranks": many, "dtype": exact}
