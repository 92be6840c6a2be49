"""`shardwright plan`: the transfers, their cost, and the lower bound."""

import sys
from dataclasses import dataclass, fields
from typing import Annotated

import typer

from shardwright.codegen.cli.flags import Flags
from shardwright.codegen.cli.tables import console
from shardwright.codegen.spec.group import Group
from shardwright.ir.errors import InputError


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
        from shardwright.codegen.operations.answers import PlanAsked
        from shardwright.codegen.operations.kinds import answers_of

        said = self.one_operation()
        answers = answers_of(said)
        self._refuse_options(
            f"a {said.kind} does not take this option",
            said.name,
            takes=answers.options,
        )
        options = {each.name: getattr(self, each.name) for each in fields(PlanAsked)}
        try:
            for printed in answers.plan(said, PlanAsked(**options)):
                if isinstance(printed, str):
                    sys.stdout.write(printed)
                    sys.stdout.flush()
                else:
                    console().print(printed)
        except InputError as error:
            raise self.located(error, said.name) from None

    def _refuse_options(
        self, rule: str, got: str, expected: str = "", takes: tuple[str, ...] = ()
    ) -> None:
        """Raise InputError for an option that an operation does not take; `takes`: the options
        that it takes."""
        options = {
            "--compare": self.compare,
            "--explain": self.explain,
            "--relabel": self.relabel,
        }
        for option, given in options.items():
            if given and f"plan {option}" not in takes:
                raise InputError(
                    rule, argument=option, got=got, expected=expected or f"no {option}"
                )

    def _print_group(self, group: Group) -> None:
        """Print the plan of each kind of reshard in a group, and the bytes of all tensors."""
        from shardwright.codegen.cli.plan_group import group_json, print_group
        from shardwright.codegen.operations.emit.choice import planned

        self._refuse_options(
            "this option takes a single reshard, not a group",
            f"the group {group.name}",
            "one of its members",
        )
        plans = {}
        for folder, (description, count) in self.kinds(group).items():
            try:
                plans[folder] = planned(description), count
            except InputError as error:
                raise self.located(error, description.name) from None
        if not self.json:
            print_group(group, plans)
            return
        folders = {member: self.chosen.folder(member) for member in group.members}
        sys.stdout.write(group_json(group, plans, folders, transfers=self.transfers))
