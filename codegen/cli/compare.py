"""`shardwright compare` and `shardwright learn`: where do loaders store elements, and where do two
of them differ?"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.ir.stored import Stored

NUMBER = re.compile(r"-?\d+")
HELP = "TOML of a stored layout, as str(sw.Stored(…)) writes it; or MODULE:FUNCTION, a loader."

TensorOption = Annotated[
    list[str] | None,
    typer.Option("--tensor", metavar="NAME=SHAPE", help="A logical tensor: q=32x16. Repeat it."),
]
RanksOption = Annotated[
    str | None, typer.Option("--ranks", help="How many ranks, or their mesh: 4, dp=2,tp=4.")
]
DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", help="Narrowest element type on the loader's way (default: float32)."),
]
LikeOption = Annotated[
    str, typer.Option("--like", help="What the loader gets: numpy, torch or jax.")
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
            help="What loaders get: numpy, torch or jax (default: as the file says, or numpy).",
        ),
    ] = None,
    relayout: Annotated[
        bool, typer.Option("--bytes", help="Print what devices must receive from FOUND instead.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print nothing where there is no difference.")
    ] = False,
) -> None:
    """Print where FOUND stores other elements than EXPECTED, as named ranges.

    Exit code 1 if anything differs. --bytes prints the bytes that a relayout from FOUND to EXPECTED
    must move, in total and between devices. A loader runs on the tensors and ranks of the other
    side if that side is a file; two loaders need --tensor and --ranks.

    Example: shardwright compare my_loaders:convert server.toml
    """
    from shardwright.codegen.learn.again import like_of
    from shardwright.codegen.learn.compare import compare as compared
    from shardwright.codegen.spec.references import told
    from shardwright.ir.relayout import Relayout, plan_relayout
    from shardwright.ir.stored import Stored

    sides = [_side(found, "FOUND"), _side(expected, "EXPECTED")]
    named = zip((found, expected), sides, strict=True)
    path, stored = next((each for each in named if isinstance(each[1], Stored)), (None, None))
    if relayout:
        for given, side in zip((found, expected), sides, strict=True):
            if not isinstance(side, Stored):
                raise InputError(
                    "there must be two layouts in files for a relayout",
                    argument="--bytes",
                    got=given,
                    expected=f"the file of shardwright learn {given} -o FILE",
                )
        print(plan_relayout(Relayout(*sides)))
        return
    if stored is None:
        _check_given(tensors, ranks)
    kind = like or ("numpy" if path is None else like_of(Path(path)))
    pair = [each if isinstance(each, Stored) else told(each, kind) for each in sides]
    comparison = compared(*pair, **_asked(tensors, ranks, dtype, kind, stored))
    if not (quiet and comparison.same):
        print(comparison)
    if not comparison.same:
        raise typer.Exit(1)


def learn(
    loader: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="load(rank, tensors) of a module here.")
    ],
    tensors: TensorOption = None,
    ranks: RanksOption = None,
    dtype: DtypeOption = None,
    like: LikeOption = "numpy",
    processes: Annotated[
        bool,
        typer.Option(
            "--processes", help="Run every rank in a process, in a group of torch over gloo."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write (default: print).")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Do not say what no layout has.")
    ] = False,
) -> None:
    """Print the stored layout of a loader's buffers as TOML.

    The loader runs for every rank on tensors whose elements are all distinct. The layout is checked
    on every element; values that fit no layout are listed as findings. `shardwright check FILE`
    learns it again.

    Example: shardwright learn my_loaders:load --tensor q=32x16 --tensor k=8x16 --ranks tp=4
    """
    from shardwright.codegen.cli.written import check_writable
    from shardwright.codegen.learn.learn import learn as learned
    from shardwright.codegen.spec.references import loader as found
    from shardwright.codegen.spec.references import told

    _check_given(tensors, ranks)
    asked = _asked(tensors, ranks, dtype, like, None)
    if output is not None:
        check_writable(output, "--output")
    load = found(loader, "MODULE:FUNCTION")
    result = learned(load if processes else told(load, like), **asked, processes=processes)
    if output is None:
        print(result)
        return
    output.write_text(f"{result}\n", encoding="utf-8")
    for finding in () if quiet else result.findings:
        print(f"{output}: not learned: {finding}")


def _check_given(tensors: list[str] | None, ranks: str | None) -> None:
    """Raise InputError unless it is said on which tensors and ranks loaders are to run."""
    for option, value in (("--tensor", tensors), ("--ranks", ranks)):
        if not value:
            expected = {"--tensor": "--tensor q=32x16", "--ranks": "--ranks tp=4"}[option]
            raise InputError("missing", argument=option, expected=expected)


def _side(given: str, argument: str) -> Any:
    """Return the layout in a file, or a loader."""
    from shardwright.codegen.spec.references import loader
    from shardwright.ir.stored import Stored

    if ":" in given and not Path(given).exists():
        return loader(given, argument)
    return Stored.read(given)


def _asked(
    tensors: list[str] | None,
    ranks: str | None,
    dtype: str | None,
    like: str,
    stored: "Stored | None",
) -> dict[str, Any]:
    """Return the tensors, ranks and dtype to run loaders with."""
    from shardwright.codegen.learn.logical import LogicalTensor
    from shardwright.ir.given import shape_of

    exact = dtype or (stored.dtype if stored is not None else "float32")
    shapes: dict[str, object] = dict(stored.tensors) if stored is not None else {}
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
                "a tensor must be given once",
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
