"""What `partition` returns: the program with its shardings, and answers about it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shardwright.codegen.partition.edges import gather_sub_axes
from shardwright.codegen.partition.local.communications import (
    Communication,
    communications,
    program_json,
)
from shardwright.codegen.partition.local.even import check_even
from shardwright.codegen.partition.local.fold import folded
from shardwright.codegen.partition.local.forms.padded import with_padding
from shardwright.codegen.partition.local.forms.shifts import with_shifts
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.products import with_transposed_products
from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.codegen.partition.local.work import computed
from shardwright.codegen.partition.overlapped import BesideMatmul, beside_matmuls
from shardwright.codegen.partition.owners import owners
from shardwright.codegen.partition.planned import planned
from shardwright.codegen.partition.remedied import remedied
from shardwright.codegen.partition.seconds import seconds_of
from shardwright.codegen.propagate.propagation import Propagated, propagate
from shardwright.codegen.propagate.trail import Change
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError, check_type, one_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Program, Value
from shardwright.ir.program_text import format_program


@dataclass(frozen=True, repr=False)
class Partitioned(Drawn):
    """A program whose values have shardings; `given` is what was said, before propagation."""

    given: Program
    mesh: Mesh
    inputs: Callable[[tuple[Any, ...]], Any]  # leaves to the tree of the arguments
    outputs: Callable[[tuple[Any, ...]], Any]
    constants: tuple[Any, ...]  # arrays that the function closes over
    parameters: tuple[str, ...]  # of the function, one an argument
    mode: str = "as_shardy"
    until: int | None = None  # the last user priority that is propagated
    gather_sub_axes: bool = False  # of arguments and results
    gather: str = "keep"  # or "regather": what is gathered of arguments
    memory_limit: int | None = None  # bytes that a device may hold at once
    topology: str | None = None  # what plans are rated on
    kernels: tuple[str, ...] = ()  # whose kernels it may have

    @functools.cached_property
    def _propagated(self) -> Propagated:
        return propagate(self.given, self.until)

    @functools.cached_property
    def program(self) -> Program:
        """The program with its shardings."""
        program = self._propagated.program
        return gather_sub_axes(program) if self.gather_sub_axes else program

    @functools.cached_property
    def local(self) -> LocalProgram:
        """What one device runs.

        Raises InputError if it cannot be said: arguments that do not divide, several meshes;
        and where every plan holds more than the memory limit.
        """
        check_even(self.given, self.program)
        ratings = Ratings(regather=self.gather == "regather", topology=self.topology)
        program = with_shifts(with_padding(self.program))
        local = planned(program, self.mesh, self.mode, ratings, self.memory_limit)
        if self.kernels:
            local = with_transposed_products(local)
        arguments = owners(self.inputs, len(local.body.arguments), "arguments")
        results = owners(self.outputs, len(local.body.results), "results")
        return folded(local, arguments, results)

    @functools.cached_property
    def communications(self) -> tuple[Communication, ...]:
        """Every collective, in order: its bytes, its line, its reason."""
        return tuple(communications(self.local).values())

    @property
    def bytes_received(self) -> int:
        """What the busiest device receives, in bytes."""
        return sum(each.bytes for each in self.communications)

    @functools.cached_property
    def computed(self) -> float:
        """What a device computes, in bytes that it could receive in that time, as plans are
        rated."""
        return computed(self.local)

    def remedies(self, number: int) -> tuple[tuple[str, Partitioned], ...]:
        """Return the program with each remedy of a communication, by its number, after what is
        asked for otherwise, as "p_w as [{}, {}]"; what receives the fewest bytes comes first.

        Raises InputError if no communication has the number.
        """
        check_type(number, int, "the number of a communication: 3 of C3", "number")
        made: list[tuple[str, Partitioned]] = []
        for each in remedied(self.given, self.local, number):
            with contextlib.suppress(InputError):  # of what does not divide, or takes more memory
                program = replace(self, given=each.given)
                program.bytes_received  # noqa: B018
                made.append((each.said, program))
        return tuple(sorted(made, key=lambda pair: pair[1].bytes_received))

    def with_remedy(self, number: int) -> Partitioned:
        """Return the program with the best remedy of a communication, by its number: what it does
        in all, be it more.

        Raises InputError if the communication has no remedy.
        """
        found = self.remedies(number)
        if not found:
            raise InputError(
                "this communication has no remedy",
                argument="number",
                got=f"{self.communications[number - 1]}",
                expected="the number of one that plan --explain has a remedy for",
            )
        return found[0][1]

    @functools.cached_property
    def kernel_choices(self) -> tuple[BesideMatmul, ...]:
        """The matmuls beside which something is gathered or scattered, each with whether a kernel
        does both at once and why; none where none were asked for."""
        if not self.kernels or self.topology is None:
            return ()
        return beside_matmuls(self.local, self.topology)

    def seconds(self, topology: str) -> tuple[float, ...]:
        """Return how long each communication takes on a topology, by the model of its network: one
        after another, with nothing computed meanwhile."""
        return seconds_of(self.local, topology)

    def to_json(self, topology: str | None = None) -> str:
        """Return what is communicated as JSON, a line a communication; the same for the same
        program. With a topology each line has its seconds."""
        seconds = () if topology is None else self.seconds(topology)
        return program_json(self.local, topology, seconds)

    @property
    def in_shardings(self) -> Any:
        """The sharding of each argument, in their tree."""
        program = self.program
        return self.inputs(tuple(program.values[v].sharding for v in program.body.arguments))

    @property
    def out_shardings(self) -> Any:
        """The sharding of each result, in their tree."""
        return self.outputs(self.program.results)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be propagated through."""
        return self.given.warnings

    def after(self, priority: int) -> Partitioned:
        """Return the program when only user priorities up to this one have been propagated."""
        known = {
            dim.priority or 0
            for sharding in (*(v.sharding for v in self.given.values), *self.given.results)
            if sharding is not None
            for dim in sharding.dims
        } | {0}
        if priority not in known:
            raise InputError(
                "no sharding has this priority",
                argument="priority",
                got=repr(priority),
                expected=one_of(map(str, sorted(known))),
            )
        return replace(self, until=priority)

    def why(self, value: str | Value) -> tuple[Change, ...]:
        """Return the steps by which a value came to its sharding, back to an argument or a
        constraint."""
        return self._propagated.trail.why(self._named(value))

    def origins(self, value: str | Value) -> dict[str, str]:
        """Return, for each axis of a value's sharding, the value or the result that it came
        from."""
        return self._propagated.trail.origins(self._named(value))

    def _named(self, value: str | Value) -> str:
        check_type(value, str | Value, "a name as 'tanh_0', or a Value of the program", "value")
        name = value.name if isinstance(value, Value) else value.removeprefix("%")
        names = [known.name for known in self.program.values]
        if name not in names:
            like = [known for known in names if name.rstrip("0123456789_") in known]
            raise InputError(
                "the program has no value of this name",
                argument="value",
                got=name,
                expected=one_of((like or names)[:8]),
            )
        return name

    def __repr__(self) -> str:
        given = self.given
        return (
            f"<Partitioned: {len(given.body.arguments)} arguments, {len(given.values)} values, "
            f"{len(given.results)} results, on {self.mesh.size} devices, mode={self.mode!r}>"
        )

    def __str__(self) -> str:
        return format_program(self.program)
