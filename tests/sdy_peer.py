"""Shardy's own passes, as they are in jaxlib: what they make of a function.

What is compared is named: an equation of the jaxpr is bound in a scope that has the name of the
value that the front end makes of it, and the scope is found again in the locations of the ops. A
pass may abort the process, so tests use this in a process of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jax
from jax.extend import core
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from shardwright.codegen.operations.compile.shardy_bytes import inline

PIPELINE = (
    "symbol-dce",
    "sdy-import-pipeline",
    "sdy-apply-sharding-constraints",
    "sdy-sharding-group-import",
    "sdy-user-priority-propagate{keep-sharding-rules=true}",
    "sdy-propagate-to-func-results",
)
EDGES = "sdy-remove-sub-axes-in-input-output-shardings"
# With origins; some modules with groups make the pass abort.
ORIGINS = tuple(one.replace("{keep", "{debug-sharding-origins=true keep") for one in PIPELINE)
CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call", "closed_call"), "call_jaxpr"),
}
CONSTRAINTS = ("shardwright_constrain", "sharding_constraint", "reshard")
REGIONS = ("stablehlo.while", "stablehlo.case", "sdy.manual_computation")
SKIPPED = ("stablehlo.constant", "sdy.constant", "func.return", "stablehlo.return")


class Scopes:
    """Interprets a jaxpr with calls inlined, each equation in the scope of its value's name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def name(self, equation: Any) -> str:
        kind = equation.primitive.name
        kind = "constrain" if kind in CONSTRAINTS else kind
        first = self.counts[kind]
        self.counts[kind] += len(equation.outvars)
        return f"{kind}_{first}"

    def run(self, jaxpr: Any, consts: Any, *arguments: Any) -> list[Any]:
        env = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else env[atom]

        for equation in jaxpr.eqns:
            results = self.equation(equation, [read(atom) for atom in equation.invars])
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, operands: list[Any]) -> list[Any]:
        kind = equation.primitive.name
        if kind in CALLS:
            inner = equation.params[CALLS[kind]]
            consts = getattr(inner, "consts", ())
            return self.run(getattr(inner, "jaxpr", inner), consts, *operands)
        if kind == "scan":
            return self.scan(equation, operands)
        with jax.named_scope(self.name(equation)):
            params = equation.primitive.get_bind_params(equation.params)
            subfuns, params = params if isinstance(params, tuple) else ((), params)
            results = equation.primitive.bind(*subfuns, *operands, **params)
        return list(results) if equation.primitive.multiple_results else [results]

    def scan(self, equation: Any, operands: list[Any]) -> list[Any]:
        params = equation.params
        consts, carries = params["num_consts"], params["num_carry"]
        inner = params["jaxpr"]
        fixed, first = operands[:consts], operands[consts : consts + carries]

        def body(carry: Any, xs: Any) -> Any:
            out = self.run(inner.jaxpr, inner.consts, *fixed, *carry, *xs)
            return tuple(out[:carries]), tuple(out[carries:])

        last, stacked = jax.lax.scan(
            body,
            tuple(first),
            tuple(operands[consts + carries :]),
            length=params["length"],
            reverse=params["reverse"],
        )
        self.counts["scan"] += len(equation.outvars)
        return [*last, *stacked]


def module_of(fn: Any, avals: Any, **shardings: Any) -> Any:
    """The module of a function, its calls inlined and its equations named."""
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(*avals)
    tree = jax.tree.structure(shape)

    def flat(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(arguments)
        return jax.tree.unflatten(tree, Scopes().run(closed.jaxpr, closed.consts, *leaves))

    lowered = jax.jit(flat, keep_unused=True, **shardings).lower(*avals)
    return lowered.compiler_ir("stablehlo")


def propagated(module: Any, pipeline: tuple[str, ...] = PIPELINE) -> Any:
    """The module after the passes."""
    with module.context, ir.Location.unknown(module.context):
        copy = ir.Module.parse(module.operation.get_asm(enable_debug_info=True))
        inline(copy)
        for one in pipeline:
            PassManager.parse(f"builtin.module({one})").run(copy.operation)
        return copy


class Rows:
    """The ops of a propagated module: by scope, with the shardings of their tensors."""

    def __init__(self, module: Any) -> None:
        self.main = next(op for op in module.body.operations if "func" in op.operation.name)
        self.meshes = {
            ir.StringAttr(op.attributes["sym_name"]).value: mesh_text(str(op.attributes["mesh"]))
            for op in module.body.operations
            if op.operation.name == "sdy.mesh"
        }
        self.arguments = self._attributes("arg_attrs", len(self.main.arguments))
        count = len(self.main.type.results)
        self.results = self._attributes("res_attrs", count)
        self.sharding: dict[Any, str] = dict(zip(self.main.arguments, self.arguments, strict=True))
        self.by_scope: dict[str, list[dict[str, Any]]] = {}
        self._walk(self.main.operation)

    def _attributes(self, name: str, count: int) -> list[str]:
        if name not in self.main.attributes:
            return [""] * count
        found = [{a.name: str(a.attr) for a in each} for each in self.main.attributes[name]]
        return [attributes.get("sdy.sharding", "") for attributes in found]

    def _walk(self, op: Any) -> None:
        for region in op.regions:
            for block in region:
                for inner in block:
                    self._op(inner.operation)
                    if inner.operation.name in REGIONS:
                        self._walk(inner.operation)

    def _op(self, op: Any) -> None:
        shardings = _of_results(op)
        self.sharding.update(zip(op.results, shardings, strict=True))
        if op.name in SKIPPED:
            return
        scope = re.findall(r"([\w-]+_\d+)/[\w\[\]=.-]+\"", str(op.location))
        row = {
            "op": op.name,
            "operands": [self.sharding.get(operand, "?") for operand in op.operands],
            "results": shardings,
            "origins": str(op.attributes["sdy.sharding_origins"])
            if "sdy.sharding_origins" in op.attributes
            else "",
            "shapes": [str(result.type) for result in op.results],
            "rule": str(op.attributes["sdy.sharding_rule"])
            if "sdy.sharding_rule" in op.attributes
            else "",
        }
        if scope:
            self.by_scope.setdefault(scope[-1], []).append(row)


def _of_results(op: Any) -> list[str]:
    count = len(op.results)
    for name in ("sdy.sharding", "sharding"):
        if name in op.attributes:
            text = str(op.attributes[name])
            found = re.findall(r"<@[\w.]+, \[.*?\](?:, replicated=\{.*?\})?>", text)
            return found if len(found) == count else [""] * count
    return [""] * count


def bare(text: str) -> str:
    """A sharding without its mesh."""
    match = re.search(r"<@[\w.]+, (.*)>$", text)
    return match[1] if match else text


def mesh_name(text: str) -> str:
    """The mesh of a sharding, by name; nothing if it has none."""
    match = re.search(r"<@([\w.]+), ", text)
    return match[1] if match else ""


def mesh_text(text: str) -> str:
    """A mesh without what is not Shardy's."""
    return text.removeprefix("#sdy.mesh")


def lower_constraints() -> None:
    """Let our constraints and groups be Shardy's in what is lowered from here on."""
    from jax.interpreters import mlir

    from shardwright.codegen.partition.constraints import _primitive

    def constraint(_: Any, x: Any, *, sharding: Any) -> Any:
        attribute = ir.Attribute.parse(sharding.to_sdy())
        made = ir.Operation.create(
            "sdy.sharding_constraint", [x.type], [x], attributes={"sharding": attribute}
        )
        return made.results

    def group(_: Any, x: Any, *, group: int) -> Any:
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), group)
        ir.Operation.create("sdy.sharding_group", [], [x], attributes={"group_id": number})
        return [x]

    mlir.register_lowering(_primitive("shardwright_constrain"), constraint)
    mlir.register_lowering(_primitive("shardwright_alike"), group)


def annotate(module: Any, inputs: list[Any], outputs: list[Any]) -> None:
    """Say the shardings of arguments and results, which may be such as jax cannot express."""
    main = next(op for op in module.body.operations if "func" in op.operation.name)
    for name, shardings in (("arg_attrs", inputs), ("res_attrs", outputs)):
        each = (f"{{sdy.sharding = {s.to_sdy()}}}" if s is not None else "{}" for s in shardings)
        with module.context:
            main.attributes[name] = ir.Attribute.parse(f"[{', '.join(each)}]")
