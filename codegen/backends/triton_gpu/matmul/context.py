"""The context of a Triton matmul module's template."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.backends.matmul_facts import (
    case_lines,
    device_table,
    dims_said,
    layout_of,
    matmul_title,
    refuse_dtype,
    refuse_wide_matmul,
)
from shardwright.codegen.backends.triton_gpu.context import NAME
from shardwright.codegen.backends.triton_gpu.matmul.kernel import MatmulKernels
from shardwright.codegen.backends.triton_gpu.matmul.kernel_text import MultiplyText
from shardwright.codegen.backends.triton_gpu.matmul.terms import has_terms, terms_function
from shardwright.codegen.backends.triton_gpu.matmul.tiles import tiles_of
from shardwright.codegen.text.context import FunctionText, function_text, id_lines, quoted
from shardwright.codegen.text.docstring import mesh_text, side_lines
from shardwright.codegen.text.index_functions import IndexFunction, box_function
from shardwright.codegen.text.python_text import INDENT, WIDTH
from shardwright.codegen.text.support import version
from shardwright.codegen.text.templates import render
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.dtypes import is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.product_terms import added, fate_of, product_layout

DTYPES = "bfloat16", "float16", "float32", "int8"
"""The dtypes that kernels can multiply."""

IMPORTS = (("torch_matmul", "TritonMatmul"),)
COTANGENTS = (("torch_cotangents", "Cotangents"),)
"""The imports that a module with cotangents adds: (support module, names)."""

NOTES = {
    "slots": "elements: offered operands, those of them before rhs, terms",
    "blocks": "of i, k and j",
    "warps": "of a program of `multiply`",
    "stages": "of its pipelined loads",
    "unit": "elements that `pull` copies as one integer",
    "overlap": "all parts arrive before `multiply` begins",
}
"""Comments on the arguments of the host's class."""

MOST = 2**23
"""The most rows or columns of a matrix. A tile has at most 2**7 rows, so the offsets of its
elements fit in 30 bits."""


@dataclass(frozen=True)
class OperandText:
    """An operand or the result: its name, shape and sharding, as in the module."""

    name: str
    shape: str
    sharding: str


@dataclass(frozen=True)
class MatmulModule:
    """The context of the module template."""

    backend: str
    support: str
    title: str
    facts: tuple[str, ...]
    command: str
    sides: tuple[OperandText, ...]
    dtypes: tuple[str, str]
    mesh: str
    ids: tuple[str, ...]
    wire_bytes: int
    functions: tuple[FunctionText, ...]
    imports: tuple[tuple[str, str], ...]
    text: MultiplyText
    templates: tuple[str, ...]
    kernels: str
    options: tuple[str, ...]


def refuse_matmul(matmul: Matmul) -> None:
    """Raise InputError for a matmul that this backend does not support."""
    refuse_wide_matmul(matmul, NAME)
    refuse_dtype(matmul, NAME, DTYPES)
    if max(matmul.extents[matmul.batch :]) > MOST:
        raise InputError(
            f"matrices are too large for {NAME}, which computes offsets in 32 bits",
            argument="lhs",
            got=" and ".join("x".join(map(str, matmul.shape(side))) for side in SIDES[:2]),
            expected=f"matrices of at most {MOST} rows and columns",
        )


def render_matmul(
    plan: MatmulPlan, command: str, backward: tuple[str, ...] = (), collective_id: int = 0
) -> str:
    """Return the text of a module; `backward`: the names of the modules that compute the cotangents
    of lhs and rhs."""
    del collective_id  # only TPU kernels use it
    matmul, product = plan.matmul, plan.chosen.multiplication
    kernels = _kernels(plan)
    layouts = kernels.layouts
    whole = product_layout(product)
    boxes = [box_function(side, layouts[side]) for side in SIDES]
    boxes += [box_function("product", whole), *_terms_functions(product)]
    found = MatmulModule(
        backend=NAME,
        support=version(NAME),
        title="\n".join(textwrap.wrap(matmul_title(matmul), WIDTH - 3)),
        facts=(*_facts(plan, layouts, kernels),),
        command=command,
        sides=tuple(
            OperandText(side.upper(), str(matmul.shape(side)), quoted(str(matmul.sharding(side))))
            for side in SIDES
        ),
        dtypes=(matmul.dtype, matmul.out_dtype),
        mesh=quoted(str(matmul.mesh)),
        ids=tuple(id_lines("IDS", matmul.mesh)),
        wire_bytes=sum(kernels.received()),
        functions=tuple(function_text(PYTHON, box) for box in boxes),
        imports=IMPORTS + COTANGENTS * bool(backward),
        text=kernels.text,
        templates=kernels.templates,
        kernels=", ".join(kernels.names),
        options=tuple(map(_noted, _options(plan, kernels, backward))),
    )
    return render("triton_gpu/matmul/module.py.jinja", found)


def _kernels(plan: MatmulPlan) -> MatmulKernels:
    product, layouts = plan.chosen.multiplication, {s: layout_of(plan.matmul, s) for s in SIDES}
    return MatmulKernels(product, layouts, tiles_of(product, layouts))


def matmul_usage(plan: MatmulPlan) -> tuple[str, ...]:
    """Return sentences on how to use a module."""
    return tuple(_usage(plan, _kernels(plan)))


def _usage(plan: MatmulPlan, kernels: MatmulKernels) -> Iterator[str]:
    yield (
        "Every rank of a torch group calls `c = matmul(a, b)` with its own shards, all calls of a "
        "group on one stream; `synchronize()` waits, and raises if a rank was missing. Until it or "
        "the next call raises, the result of such a call is undefined: kernels give up after "
        "`_HOST.polls` polls, which should take minutes."
    )
    truncated = ""
    if "bfloat16" in (plan.matmul.dtype if kernels.adds else "", plan.matmul.out_dtype):
        truncated = (
            ", which truncates float32 to bfloat16 where GPUs round to nearest: results may differ "
            "from theirs in the last bit"
        )
    yield (
        "It needs GPUs of one host, with torch's symmetric memory of the backend CUDA. On a CPU it "
        f"runs in Triton's interpreter (TRITON_INTERPRET=1){truncated}."
    )
    arrivals = f", and up to {kernels.arrivals:,} bytes for parts that arrive" * bool(kernels.moved)
    yield (
        f"Its first call allocates {kernels.shared:,} bytes of memory that peers access{arrivals}; "
        "they remain as long as the group."
    )
    yield "Such kernels have run on one H200 and in Triton's interpreter, not on several GPUs."


def _terms_functions(product: Multiplication) -> list[IndexFunction]:
    if not has_terms(product.matmul):
        return []
    return [terms_function(product, side) for side in SIDES if _is_summed(product, side)]


def _is_summed(product: Multiplication, side: Side) -> bool:
    return side == "out" or bool(product.matmul.sharding(side).unreduced)


def _options(plan: MatmulPlan, kernels: MatmulKernels, backward: tuple[str, ...]) -> Iterator[str]:
    tiles, text = kernels.tiles, kernels.text
    start = max((side.start for side in text.moved), default=0)
    yield f"slots=({text.slot}, {start}, {text.sums})"
    yield f"blocks={tiles.blocks}"
    yield f"warps={tiles.warps}"
    yield f"stages={tiles.stages}"
    if text.moved:
        yield f"unit={text.copied.width}"
    if text.described:
        yield "described=True"
    yield from _terms_given(plan.chosen.multiplication)
    if not plan.pulls:
        yield "overlap=False"
    if backward:
        yield f"cotangents=Cotangents({', '.join(map(quoted, backward))})"


def _noted(option: str) -> str:
    note = NOTES.get(option.split("=")[0])
    return f"{option},  # {note}" if note else f"{option},"


def _terms_given(product: Multiplication) -> list[str]:
    matmul = product.matmul
    if not has_terms(matmul):
        return []
    terms = ", ".join(f"{s}_terms" if _is_summed(product, s) else "None" for s in SIDES)
    operators = tuple(matmul.sharding(side).operator for side in SIDES)
    said = ", ".join(map(quoted, operators))
    return [f"terms=({terms})", *([f"operators=({said})"] if {*operators} != {"sum"} else [])]


def _facts(plan: MatmulPlan, layouts: dict[Side, Layout], kernels: MatmulKernels) -> Iterator[str]:
    matmul = plan.matmul
    on = mesh_text(matmul.mesh)
    yield f"C[{dims_said(matmul, 'out')}] = sum over j of A[{dims_said(matmul, 'lhs')}] * " + (
        f"B[{dims_said(matmul, 'rhs')}], on {on}."
    )
    names: tuple[tuple[Side, str], ...] = (("lhs", "A"), ("rhs", "B"), ("out", "C"))
    for side, name in names:
        own = Layout.of(matmul.sharding(side), matmul.shape(side), "flat")
        stated = side_lines(side, name, str(matmul.sharding(side)), own, "dense")
        yield stated[0].replace(f" on {on}", "")
        yield from stated[2:]
    yield ""
    yield from case_lines(plan)
    yield ""
    for text in _moves(plan, kernels):
        yield from textwrap.wrap(
            text, WIDTH, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False
        )
    yield ""
    yield from textwrap.wrap(" ".join(_usage(plan, kernels)), WIDTH, break_on_hyphens=False)
    if has_terms(matmul):
        yield ""
        yield "For unreduced operands the first range below is the number of the device's term."
    yield from device_table(layouts)


def _moves(plan: MatmulPlan, kernels: MatmulKernels) -> Iterator[str]:
    matmul, product, tiles = plan.matmul, plan.chosen.multiplication, kernels.tiles
    lhs, rhs = (" x ".join(map(str, product.local_shape(side))) for side in SIDES[:2])
    yield f"Each device multiplies {lhs} by {rhs}, {product.flops} flops, in tiles of " + (
        f"{tiles.blocks[0]} x {tiles.blocks[1]}, in steps of {tiles.blocks[2]} along j."
    )
    bytes_of = dict(zip(SIDES, kernels.received(), strict=True))
    when = "before it multiplies"
    if plan.pulls:
        when = "while it multiplies the parts that have arrived"
    for side in SIDES[:2]:
        if bytes_of[side]:
            terms, how = added(product, side), matmul.sharding(side).operator
            made = f", and combines {terms} terms by {how}" * (terms > 1)
            yield f"It takes {bytes_of[side]} bytes of {side} from its peers {when}{made}."
    if bytes_of["out"]:
        yield (
            "A device sends tiles of other devices' results as soon as they are computed, those of "
            f"the farthest device first: {bytes_of['out']} bytes to the busiest device."
        )
    yield f"The busiest device receives {sum(bytes_of.values())} bytes."
    yield f"A device sums its products in {matmul.sum_dtype}."
    if added(product, "out") > 1:
        wide = "float32" if is_floating(matmul.out_dtype) else "int32"
        order = "one order" if has_terms(matmul) else "the order of their ranges of j"
        yield (
            f"Partial sums of devices are {matmul.out_dtype}; the owner of a result adds them in "
            f"{wide}, in {order}, and rounds once."
        )
    new = " and ".join(map(str, fate_of(product, "out").new))
    if new:
        yield f"Along {new} the device of coordinate 0 has all of the result, and no other any."
