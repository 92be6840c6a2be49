"""Emission of matmuls: turn a matmul, a plan or a description into the files of its bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from shardwright.codegen import registry
from shardwright.codegen.moves.matmul.plan import LISTED, plan_matmul
from shardwright.codegen.operations.emit.choice import checked, loops_of
from shardwright.codegen.operations.emit.package import BundlePackage
from shardwright.codegen.operations.emit.write import bundle_folder, write_bundle
from shardwright.codegen.registry import MULTIPLYING
from shardwright.codegen.show.matmul_review import matmul_page, module_lines
from shardwright.codegen.show.matmul_svg import matmul_svg
from shardwright.codegen.spec.collective_ids import matmul_id
from shardwright.codegen.spec.description import BUNDLE_IDS, read_id, with_comment
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.text.single_file import single_file as joined
from shardwright.codegen.text.support import reading_order, support_files, support_text
from shardwright.codegen.text.templates import render
from shardwright.ir.drawn import Drawn
from shardwright.ir.dtypes import is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Matmul
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True, repr=False)
class MatmulBundle(Drawn):
    """The emission of a plan. `topology` and `loop` are the options that determined the plan."""

    plan: MatmulPlan
    backends: tuple[str, ...]
    topology: str | None = None
    loop: str = "auto"
    gradient: bool = False
    single_file: bool = False
    collective_id: int | None = None

    def __repr__(self) -> str:
        return f"<MatmulBundle for {', '.join(self.backends)}: {self.plan!r}>"

    def description(self, name: str) -> MatmulDescription:
        """Return the description from which this bundle can be emitted again, under a name."""
        chosen_by = (self.backends, self.topology, self.loop)
        return MatmulDescription.of(
            self.plan.matmul,
            name,
            *chosen_by,
            gradient=self.gradient,
            single_file=self.single_file,
            collective_id=self.collective_id,
        )

    @cached_property
    def backward(self) -> tuple[MatmulPlan, ...]:
        """The plans of the cotangents of lhs and rhs, if emitted."""
        return backward_plans(self.plan) if self.gradient else ()

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name. Equal bundles have equal
        texts."""
        described, picture = self.description(name), matmul_svg(self.plan)
        command, support = described.command(), bool(support_files(described.supported))
        modules = self.modules(command)
        return {
            **modules,
            "README.md": matmul_page(self.plan, name, command, self.backward, self._usage(modules)),
            "__init__.py": render(
                "common/package.py.jinja", BundlePackage("matmul", support, self.backends)
            ),
            "plan.json": self.plan.to_json(),
            **({} if picture is None else {"matmul.svg": picture}),
        }

    def _usage(self, modules: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        found = {}
        for name in self.backends:
            file = f"{name}.py"
            listed = ", ".join(f"`{each}`" for each in reading_order(modules[file]))
            read = (f"Read of `_support`, in this order: {listed}.",) if listed else ()
            backend = registry.backend(name)
            does = module_lines(self.plan, backend.loops)
            found[file] = *does, *backend.matmul_usage(self.plan), *read
        return found

    def modules(self, command: str) -> dict[str, str]:
        """Return the text of every module, by file name, each followed by the modules of its
        cotangents."""
        found: dict[str, str] = {}
        for name in self.backends:
            plans = self.backward
            files = tuple(f"{name}_{side}_backward" for side in ("lhs", "rhs"))[: len(plans)]
            renders, read = registry.backend(name).render_matmul, partial(support_text, (name,))
            first = matmul_id(self.description("of_any_name"))
            texts = {f"{name}.py": renders(self.plan, command, files, first)}
            for number, (file, plan) in enumerate(zip(files, plans, strict=True), first + 1):
                said = with_comment(command, f"{file}.py, a gradient")
                texts[f"{file}.py"] = renders(plan, said, collective_id=number)
            for file, text in texts.items():
                found[file] = joined(text, read) if self.single_file else text
        return found

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path` and record it in the manifest next to that
        folder. The last part of `path` is the bundle's name. Return the files that were changed or
        removed. On an error, write nothing."""
        folder = bundle_folder(path, "generated/mlp_up")
        return write_bundle(folder, self.description(folder.name), self.files(folder.name))


def backward_matmuls(matmul: Matmul) -> tuple[Matmul, Matmul]:
    """Return the matmuls that compute the cotangents of lhs and rhs from C', the cotangent of the
    result C = A B: C' B^T and A^T C', in the dtype of C.

    Every term of an unreduced value has the same cotangent as the sum, so devices with terms have
    replicas of the cotangent.
    """
    lhs, rhs = ((matmul.shape(side), matmul.sharding(side)) for side in ("lhs", "rhs"))
    out = matmul.out_shape, _replicated(matmul.out)
    return (
        Matmul(matmul.out_dtype, out, _transposed(*rhs), _replicated(lhs[1])),
        Matmul(matmul.out_dtype, _transposed(*lhs), out, _replicated(rhs[1])),
    )


def _replicated(sharding: Sharding) -> Sharding:
    return replace(sharding, unreduced=())


def _transposed(shape: tuple[int, ...], sharding: Sharding) -> tuple[tuple[int, ...], Sharding]:
    dims = (*sharding.dims[:-2], sharding.dims[-1], sharding.dims[-2])
    return (*shape[:-2], shape[-1], shape[-2]), replace(sharding, dims=dims)


def backward_plans(plan: MatmulPlan) -> tuple[MatmulPlan, MatmulPlan]:
    """Return the plans of the cotangents of lhs and rhs for the same topology, with loops if they
    are faster."""
    asked = plan.asked if plan.asked in ("never", "pulled") else "auto"
    lhs, rhs = (
        plan_matmul(each, plan.topology, loop=asked, among=plan.among, listed=0)
        for each in backward_matmuls(plan.matmul)
    )
    return lhs, rhs


def check_gradient(matmul: Matmul) -> None:
    """Raise InputError unless the matmul has a gradient: its dtype must be floating, and no side
    may be a partial maximum or minimum."""
    if not is_floating(matmul.dtype):
        raise InputError(
            "only floating dtypes have gradients",
            argument="gradient",
            got=matmul.dtype,
            expected="a floating dtype, such as bfloat16, or no gradient",
        )
    for side in SIDES:
        sharding = matmul.sharding(side)
        if sharding.unreduced and sharding.operator != "sum":
            raise InputError(
                "a partial maximum or minimum has no derivative where values are equal",
                argument="gradient",
                got=f"{side} {sharding}",
                expected="unreduced=sum{…}, or no gradient",
            )


def emit_matmul(
    what: Matmul | MatmulPlan,
    backends: tuple[str, ...] = MULTIPLYING,
    topology: str | None = None,
    loop: str | None = None,
    *,
    gradient: bool = False,
    single_file: bool = False,
    collective_id: int | None = None,
) -> MatmulBundle:
    """Return the bundle of a matmul, or of its plan.

    A MatmulPlan already includes the options that determined it. With loop="auto" it is made again
    if it was chosen among other loops than the backends execute. Raises InputError for an unknown
    backend and if a backend refuses the matmul.
    """
    names = checked(backends)
    matmul = what.matmul if isinstance(what, MatmulPlan) else what
    for name in names:
        registry.backend(name).refuse_matmul(matmul)
    if gradient:
        check_gradient(matmul)
    if isinstance(what, MatmulPlan):
        plan, topology, loop = _among(what, loops_of(names)), what.topology, what.asked
    else:
        loop = loop or "auto"
        plan = plan_matmul(what, topology, loop=loop, among=loops_of(names))
    read_id(collective_id, BUNDLE_IDS)
    return MatmulBundle(plan, names, topology, loop, gradient, single_file, collective_id)


def _among(plan: MatmulPlan, loops: tuple[str, ...]) -> MatmulPlan:
    """Return a plan that "auto" chooses among some loops."""
    if plan.among == loops or plan.asked != "auto" or plan.topology is None:
        return replace(plan, among=loops)
    return plan_matmul(plan.matmul, plan.topology, among=loops)


def plan_described_matmul(description: MatmulDescription, listed: int = LISTED) -> MatmulPlan:
    """Return the plan of a description. `listed`: as for `plan_matmul`."""
    return plan_matmul(
        description.matmul(),
        description.topology,
        loop=description.loop,
        among=loops_of(description.backends),
        listed=listed,
    )


def emit_described_matmul(description: MatmulDescription) -> MatmulBundle:
    return emit_matmul(
        description.matmul(),
        description.backends,
        description.topology,
        description.loop,
        gradient=description.gradient,
        single_file=description.single_file,
        collective_id=description.collective_id,
    )
