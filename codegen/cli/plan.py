"""`shardwright plan`: the transfers, their cost, and the lower bound."""

import sys
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.explain import explain, verdict_lines
from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.tables import console, ratio
from shardwright.codegen.cli.totals import print_totals
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.model import ModelDescription, of_key
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from shardwright.codegen.spec.description import Description
    from shardwright.ir.matmul_plan import MatmulPlan
    from shardwright.ir.plan import DirectPlan, Plan, Prediction, SteppedPlan

# With more devices, the output for people lists no tiles.
LISTED_DEVICES = 16
# With more devices, transfers are not enumerated and ordered into rounds.
SCHEDULED_DEVICES = 512
# A plan within this fraction of the lower bound is reported as optimal.
PROVEN = 1e-4


@dataclass(frozen=True, kw_only=True)
class PlanCommand(Flags):
    """Show the bytes that a plan moves, and the minimum for any plan.

    Example: shardwright plan --mesh x=2,y=3 --shape 6x6 --dtype f32 --source "P('x', 'y')" --target
    "P('y', 'x')"
    """

    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for tools.")] = False
    transfers: Annotated[
        bool,
        typer.Option("--transfers", help="List every transfer, for any number of devices."),
    ] = False
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare direct, basis and XLA's own plan with the lower bound; for a program, "
            "compare both modes with jax.jit, which is compiled for it, and with Shardy's passes.",
        ),
    ] = False
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Print the cost terms of the plan, and the cost of each alternative; for a "
            "program, the effect of the best remedy of each communication.",
        ),
    ] = False
    relabel: Annotated[
        bool,
        typer.Option(
            "--relabel",
            help="Order the target's devices so that the fewest bytes move, and print how many.",
        ),
    ] = False

    def run(self) -> None:
        """Print the plan, or a comparison of plans."""
        for given, option in ((self.compare, "--compare"), (self.explain, "--explain")):
            if given and self.json:
                raise InputError(
                    "a comparison cannot be printed as JSON",
                    argument=option,
                    got=f"{option} --json",
                    expected=f"{option} or --json",
                )
        group = self.group
        if group is not None:
            self._print_group(group)
            return
        asked = self.one_operation()
        if isinstance(asked, MatmulDescription):
            self._print_matmul(asked)
            return
        if isinstance(asked, ProgramDescription):
            self._print_program(asked)
            return
        if isinstance(asked, RelayoutDescription):
            self._print_relayout(asked)
            return
        if isinstance(asked, ModelDescription):
            self._print_model(asked)
            return
        description = asked
        try:
            if self.relabel:
                description = _relabelled(description, quiet=self.json)
            if self.compare:
                _print_comparison(description)
                return
            planned = planned_as_emitted(description)
        except InputError as error:
            raise self.located(error, description.name) from None
        if self.json:
            from shardwright.codegen.emit.ways import plan_json

            transfers = True if self.transfers else None
            sys.stdout.write(plan_json(planned, description.backends, transfers))
            return
        _print(planned, self.transfers)
        _print_ways(planned, description)
        if description.topology is not None:
            for line in verdict_lines(planned, description):
                print(line)
        if self.explain:
            explain(planned, description)

    def _print_matmul(self, description: "MatmulDescription") -> None:
        """Print the plan of a matmul."""
        for given, option in ((self.compare, "--compare"), (self.relabel, "--relabel")):
            if given:
                raise InputError(
                    "this option is for reshards only",
                    argument=option,
                    got=f"the matmul {description.name}",
                    expected=f"no {option}",
                )
        planned = planned_matmul(self, description)
        if self.json:
            sys.stdout.write(planned.to_json(transfers=True if self.transfers else None))
            return
        print_matmul(planned)

    def _refuse_options(self, rule: str, got: str, expected: str = "") -> None:
        """Raise InputError for an option that only the plan of a single reshard takes."""
        options = {
            "--compare": self.compare,
            "--explain": self.explain,
            "--relabel": self.relabel,
        }
        for option, given in options.items():
            if given:
                raise InputError(
                    rule, argument=option, got=got, expected=expected or f"no {option}"
                )

    def _print_relayout(self, description: RelayoutDescription) -> None:
        """Print the bytes that a relayout moves."""
        from shardwright.ir.relayout import plan_relayout

        self._refuse_options("this option is for reshards only", f"the relayout {description.name}")
        planned = plan_relayout(description.relayout())
        sys.stdout.write(planned.to_json() if self.json else f"{planned}\n")

    def _print_model(self, description: ModelDescription) -> None:
        """Print the bytes that a model moves, and the result of its proof."""
        from shardwright.codegen.call.sync import sync

        self._refuse_options("this option is for reshards only", f"the model {description.name}")
        self.check_keys(description.name, "model", "backends", "memory_limit")
        try:
            limit = description.memory_limit
            weights = sync(description.model(), *description.rules(), memory_limit=limit)
            text = weights.plan.to_json() if self.json else f"{weights}\n"
        except InputError as error:
            raise self.located(of_key(error), description.name) from None
        sys.stdout.write(text)

    def _print_program(self, description: ProgramDescription) -> None:
        """Print the communication of a program. Being over budget is an error, raised after
        printing."""
        if self.relabel:
            raise InputError(
                "this option is for reshards only",
                argument="--relabel",
                got=f"the program {description.name}",
                expected="no --relabel",
            )
        from shardwright.codegen import registry
        from shardwright.codegen.emit.program import check_budget, traced_described
        from shardwright.codegen.show.program_review import program_text, remedies_text

        try:
            program = traced_described(description)
            kernels = () if self.json else registry.program_backend().kernel_lines(program)
            made = program.to_json if self.json else partial(program_text, program, kernels=kernels)
            sys.stdout.write(made(description.topology))
            sys.stdout.flush()
            if self.explain:
                sys.stdout.write(remedies_text(program))
            if self.compare:
                print_totals(program, description)
            check_budget(description, program)
        except InputError as error:
            raise self.located(error, description.name) from None

    def _print_group(self, group: Group) -> None:
        """Print the plan of each kind of reshard in a group, and the bytes of all tensors."""
        from shardwright.codegen.cli.plan_group import group_json, print_group

        self._refuse_options(
            "one reshard is needed", f"the group {group.name}", "one of its members"
        )
        plans = {}
        for folder, (description, count) in self.kinds(group).items():
            try:
                plans[folder] = planned_as_emitted(description), count
            except InputError as error:
                raise self.located(error, description.name) from None
        if not self.json:
            print_group(group, plans)
            return
        folders = {member: self.chosen.folder(member) for member in group.members}
        sys.stdout.write(group_json(group, plans, folders, transfers=self.transfers))


def _print_ways(planned: "Plan", description: "Description") -> None:
    """Print the way in which modules reduce partial sums, if there are any."""
    from shardwright.codegen.emit.ways import reduced_by

    for backend, way in reduced_by(planned, description.backends).items():
        print(f"{backend} reduces terms by {way}")


def planned_matmul(given: Flags, description: "MatmulDescription") -> "MatmulPlan":
    """Return the plan of the described matmul."""
    from shardwright.codegen.planner.matmul.plan import plan_matmul

    try:
        return plan_matmul(description.matmul(), description.topology, loop=description.loop)
    except InputError as error:
        raise given.located(error, description.name) from None


def print_matmul(planned: "MatmulPlan") -> None:
    """Print the plan of a matmul as text."""
    from shardwright.codegen.show.matmul import matmul_text

    print(matmul_text(planned))


def planned_of(given: Flags, description: "Description") -> "DirectPlan":
    """Return the direct plan of the described reshard. Raises InputError if another strategy is
    selected."""
    from shardwright.codegen.planner import plan as plan_of
    from shardwright.codegen.planner.direct import plan_direct
    from shardwright.ir.plan import direct_of

    try:
        reshard = description.reshard()
        if reshard.adds and description.strategy != "basis":
            return plan_direct(reshard)
        return direct_of(
            plan_of(
                reshard,
                description.strategy,
                topology=description.topology,
                memory_limit=description.memory_limit,
                among=("direct",),
            )
        )
    except InputError as error:
        raise given.located(error, description.name) from None


def planned_as_emitted(description: "Description") -> "Plan":
    """Return the plan that `emit` writes."""
    from shardwright.codegen.emit.choice import planned

    return planned(description)


def _relabelled(description: "Description", quiet: bool) -> "Description":
    from shardwright.codegen.planner.relabel import relabel

    found = relabel(description.reshard())
    if not quiet:
        before, after = found.bytes_before, found.bytes_after
        if after == before:
            print(f"not relabelled: {before:,} bytes move in any order of the target's devices")
            return description
        print(f"relabelled: {after:,} bytes move instead of {before:,}, by --target-mesh")
        print(f"  '{found.reshard.target.mesh}'")
    return replace(description, target_mesh=str(found.reshard.target.mesh))


def _print_comparison(description: "Description") -> None:
    from rich.table import Table

    from shardwright.codegen.planner.compare import compare

    table = Table("plan")
    for heading in ("busiest device", "in total", "peak memory", "seconds", "steps"):
        table.add_column(heading, justify="left" if heading == "steps" else "right")
    rows = compare(description.reshard(), description.topology, description.memory_limit)
    for row in rows:
        seconds = "" if row.seconds is None else f"{row.seconds:.3g}"
        figures = (row.received_max, row.received_total, row.peak)
        shown = ("" if figure is None else f"{figure:,}" for figure in figures)
        table.add_row(row.name, *shown, seconds, row.steps)
    console().print(table)
    print(f"bytes received; seconds on {rows[0].topology}")


def _print(planned: "Plan", transfers: bool) -> None:
    from shardwright.codegen.emit.emit import executing
    from shardwright.codegen.show import tile_table
    from shardwright.ir.plan import DirectPlan, SteppedPlan

    reshard = planned.reshard
    shape = "x".join(map(str, reshard.shape)) or "()"
    print(f"{reshard.dtype} {shape}: {reshard.source} on {reshard.source.mesh}")
    print(f"-> {reshard.target} on {reshard.target.mesh}")
    print(f"strategy {planned.strategy}, steps: {planned.ops or 'none'}")
    if isinstance(planned, SteppedPlan):
        names = ", ".join(executing(planned.strategy, planned.reshard))
        others = "; other backends take direct plans" if planned.strategy == "basis" else ""
        print(f"(emitted by {names}{others})")
        console().print(_steps_table(planned))
    if planned.prediction is not None:
        if isinstance(planned, DirectPlan):
            print("links alone, all transfers at once: ", end="")
        _print_prediction(planned.prediction)
        if isinstance(planned, DirectPlan) and planned.devices <= SCHEDULED_DEVICES:
            _print_rounds(planned, planned.prediction.topology)
    console().print(_bytes_table(planned))
    if isinstance(planned, SteppedPlan):
        return
    if transfers:
        print(tile_table(planned, limit=None))
    elif planned.devices <= LISTED_DEVICES:
        print(tile_table(planned))


def _steps_table(planned: "SteppedPlan") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table("step", "axes", "after")
    table.add_column("seconds", justify="right")
    seconds = (*planned.prediction.step_seconds, 0.0)
    for step in planned.to_dict(transfers=False)["steps"]:
        after = step["after"] if isinstance(step["after"], str) else step["after"]["sharding"]
        cost = f"{seconds[table.row_count]:.3g}"
        table.add_row(step["op"], ", ".join(step["axes"]), escape(after), cost)
    return table


def _print_prediction(prediction: "Prediction") -> None:
    print(f"{prediction.seconds:.3g} seconds on {prediction.topology}", end="")
    least = prediction.least_seconds
    if least is not None and least < (1 - PROVEN) * prediction.seconds:
        print(f"; at least {_rounded_down(least)} by any steps of the basis", end="")
    print(f"; at most {prediction.peak_bytes:,} bytes per device")
    if prediction.why:
        print(f"more than the larger shard: {prediction.why}")


def _rounded_down(seconds: float) -> str:
    """Round a bound down to three digits, so that it remains a bound."""
    down = Context(prec=3, rounding=ROUND_FLOOR).create_decimal_from_float(seconds)
    return f"{float(down):.3g}"


def _print_rounds(planned: "DirectPlan", topology: str) -> None:
    from shardwright.codegen.planner.plan import network_of
    from shardwright.codegen.planner.rounds import schedule

    made = schedule(planned.transfers(), network_of(planned.reshard, topology))
    if made.count:
        rounds = "1 round" if made.count == 1 else f"{made.count} rounds"
        print(f"{rounds} by {made.kind}; the busiest device takes part in {made.least}")


def _bytes_table(planned: "Plan") -> "Table":
    from rich.table import Table

    traffic = planned.traffic
    table = Table("bytes")
    for heading in ("moved", "bound", "moved / bound"):
        table.add_column(heading, justify="right")
    for what, moved, bound in (
        ("received by the busiest device", traffic.received_max, traffic.bound_received_max),
        ("received in total", traffic.received_total, traffic.bound_received_total),
        ("sent by the busiest device", traffic.sent_max, traffic.bound_sent_max),
    ):
        table.add_row(what, f"{moved:,}", f"{bound:,}", ratio(moved, bound))
    return table
