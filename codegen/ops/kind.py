"""The facts about one kind of op: its row in the file of its family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shardwright.codegen.ops.build import Shape, Shapes
from shardwright.codegen.ops.fills import Fill
from shardwright.codegen.ops.form_texts.statement import FormLines, FormText
from shardwright.codegen.ops.forms.form import LocalForm, OpTensors
from shardwright.codegen.ops.text import MakeText, OpText
from shardwright.ir.program import Op, Param, Rule

MakeRule = Callable[[Op, Shapes, Shapes], Rule]
MakeForm = Callable[[OpTensors], LocalForm | None]
MakeFormText = Callable[[FormText], FormLines]
Flops = Callable[[Op, tuple[Shape, ...], Rule], int]
Dims = frozenset[int]  # dimensions of a tensor
NONE: Dims = frozenset()
Evaluate = Callable[[Op, Sequence[Any], Shape], Any]
Test = Callable[[OpText], bool]
Group = Literal[
    "", "elementwise", "view", "cumulative", "collective", "constant", "control", "opaque"
]


Splits = Literal["by rule", "by form", "freely"]
Terms = Literal["", "together", "first", "either", "cases"]
Hold = Callable[[Op, Rule], Iterator[int]]
Moved = Callable[[Op, Sequence[Shape], Mapping[int, int]], list[Dims]]
Extend = Callable[[Op, Sequence[Shape], Sequence[Shape]], dict[str, Param] | None]


@dataclass(frozen=True)
class OpKind:
    """A kind of op, by its name in a jaxpr, and the facts that each stage needs about it.

    Tracing. `stem`: the word for it in names of values, by default its name; `symbol`: its Python
    operator; `dims`: the dimension numbers of an equation that become parameters.

    Propagation. `rule`: makes the sharding rule of an op from the shapes of its operands and
    results, None if no sharding propagates through the op; `passes`: whether it is visited early,
    like elementwise ops.

    Splitting. `splits`: the factors along which shards can split it without communication: those
    that its rule allows, none outside its local form, or all; `held`: yields the factors that it
    cannot split although its rule allows it; `operator`: the operator that combines its partial
    results if a reduced factor is split; `does`: the verb for that reduction, in reasons; `terms`:
    the operands that may be partial sums: all together, the first, either of two, or all but the
    first; `form`: makes the form in which it runs along split dimensions; `flops`: returns the
    number of operations on unsplit tensors; `is_fused`: whether it costs nothing, because compilers
    fuse it with its neighbours.

    Padded ends. `is_apart`: whether it runs on padded rows along dimensions in which it does not
    mix rows; `fill`: the value that it must read in padded rows of an operand whose rows it
    combines, "" if it combines none; `is_bilinear`: whether the gradient of one operand is a
    product with the other operand, including padded rows; `indexed`: the parameter with the
    dimensions to which its indices refer; `moved`: returns the dimensions of each tensor along
    which rows move; `extend`: returns the parameters that differ for tensors of other shapes, None
    if no parameters express it; `dilation`: the parameter with which an op over windows takes the
    rows that a pad inserts.

    Known results. `computed`: its numpy function, if its results on constants are the same on every
    platform; `keeps`: whether its result is filled with a number if its operand is; `evaluate`:
    returns the elements of its result on constant operands, if indices may be followed through it;
    `neutral`: the second operand that changes nothing, and the first operand too if the op
    `commutes`; `same`: whether an op returns its operand unchanged; `reshapes`: whether an op only
    reshapes its operand.

    Modules. `text`: writes the op for shards, None if another file of the backend writes it or
    nothing does; `form_text`: writes its local form; `numbers`: whether it accepts a Python number
    as an operand; `imports`: the import that its text needs in addition to `jax`, `jnp` and `lax`,
    or a function that returns it for an op; `form_imports`: the import that its form needs;
    `refused`: why a module cannot contain it; `joins`: whether it joins operands, which XLA may
    slice out of its result again; `is_list`: whether its text is a list, even of one result;
    `is_bound`: whether its text binds a primitive, whose operands must all vary along the same
    axes; `loops`: whether jax lowers it to a loop whose carry varies over devices only after the
    first iteration.
    """

    name: str
    rule: MakeRule | None = None
    text: MakeText | None = None
    form: MakeForm | None = None
    form_text: MakeFormText | None = None
    group: Group = ""
    stem: str = ""
    symbol: str = ""
    dims: tuple[str, ...] | Callable[[Any], dict[str, Any]] = ()
    passes: bool = False
    splits: Splits = "by rule"
    held: Hold | None = None
    operator: str = ""
    does: str = "sums over"
    terms: Terms = ""
    flops: Flops | None = None
    is_fused: bool = False
    is_apart: bool = False
    fill: Fill | Callable[[Op, int], Fill] = ""
    is_bilinear: bool = False
    indexed: str = ""
    moved: Moved | None = None
    extend: Extend | None = None
    dilation: str = ""
    computed: Callable[..., Any] | None = None
    evaluate: Evaluate | None = None
    keeps: bool = False
    neutral: float | None = None
    commutes: bool = False
    same: Test | None = None
    reshapes: Test | None = None
    numbers: bool = False
    imports: str | Callable[[Op], str] = ""
    form_imports: str = ""
    refused: str = ""
    joins: bool = False
    is_list: bool = False
    is_bound: bool = False
    loops: bool = False

    @property
    def is_pointwise(self) -> bool:
        """Whether each element of a result depends on one element of each operand."""
        return self.group in ("elementwise", "view")

    @property
    def is_elementwise(self) -> bool:
        """Whether operands and results all have the same shape, and elements are independent."""
        return self.group == "elementwise"

    def fill_of(self, op: Op, place: int) -> Fill:
        """Return the value that an op must read in the padded rows of operand `place`."""
        return self.fill(op, place) if callable(self.fill) else self.fill

    def moved_dims(self, op: Op, shapes: Sequence[Shape], extents: Mapping[int, int]) -> list[Dims]:
        """Return the dimensions along which the rows of each tensor of an op move: dimensions that
        a pad extends or crops, dimensions along which windows slide, and the dimension of a shift
        for tensors that are, once padded, as long as the result. `shapes`: the shapes of the
        tensors, operands first; `extents`: maps extents to padded extents."""
        return [NONE] * len(shapes) if self.moved is None else self.moved(op, shapes, extents)
