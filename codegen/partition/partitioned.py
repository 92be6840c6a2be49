"""The result of `partition`: the program with its shardings, and queries about it."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shardwright.codegen.partition.local.communications import (
    NO_ROWS,
    Communication,
    WrittenRows,
    communications,
    program_json,
)
from shardwright.codegen.partition.local.least import least_cost
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.codegen.partition.local.work import computed
from shardwright.codegen.partition.overlapped import BesideMatmul, beside_matmuls
from shardwright.codegen.partition.padding import pad, unpad
from shardwright.codegen.partition.passes import LOWERING, SHARDING, run
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
    """A program whose values have shardings. `given`: the same program with only the stated
    shardings, before propagation."""

    given: Program
    mesh: Mesh
    inputs: Callable[[tuple[Any, ...]], Any]  # makes the tree of the arguments from its leaves
    outputs: Callable[[tuple[Any, ...]], Any]
    constants: tuple[Any, ...]  # arrays that the function closes over
    opaque: tuple[Any, ...]  # calls that modules store as StableHLO, of class OpaqueCall
    parameters: tuple[str, ...]  # names of the function's parameters, one per argument
    mode: str = "as_shardy"
    until: int | None = None  # the lowest user priority to propagate
    gather_sub_axes: bool = False  # whether arguments and results are gathered along sub-axes
    gather: str = "keep"  # "keep" gathered arguments, or "regather" them
    memory_limit: int | None = None  # the most bytes that a device may have at once
    topology: str | None = None  # the topology that determines costs
    kernels: tuple[str, ...] = ()  # backends whose kernels are allowed

    @functools.cached_property
    def propagated(self) -> Propagated:
        """The program with propagated shardings, and the trail of reasons for them."""
        return propagate(self.given, self.until)

    @functools.cached_property
    def program(self) -> Program:
        """The program with a sharding for every value."""
        program: Program = run(SHARDING, self, self.given)
        return program

    @functools.cached_property
    def local(self) -> LocalProgram:
        """The program of one device.

        Raise InputError if the given sharding of an argument or a result has partial sums, if
        values are on several meshes, or if every plan exceeds the memory limit.
        """
        local: LocalProgram = run(LOWERING, self, self.program)
        return local

    @functools.cached_property
    def communications(self) -> tuple[Communication, ...]:
        """All communications in order, each with its bytes, its line of the user's code, and its
        reason."""
        return tuple(communications(self.local).values())

    @property
    def bytes_received(self) -> int:
        return sum(each.bytes for each in self.communications)

    @functools.cached_property
    def computed(self) -> float:
        """The cost of a device's computation, rated as in the search: the bytes that the device
        could receive in the time of the computation."""
        return computed(self.local)

    @property
    def cost(self) -> float:
        """The cost that the mode `cheapest` minimizes, in bytes: the bytes received, plus those
        that a device could receive while it computes."""
        return self.bytes_received + self.computed

    @functools.cached_property
    def lower_bound(self) -> int | None:
        """A lower bound, in bytes, on the cost of every plan that splits equal layers in the same
        way, or None unless the mode is `cheapest`."""
        if self.mode != "cheapest":
            return None
        return least_cost(self.local.program, self.mesh, Ratings(topology=self.topology))

    def remedies(self, number: int) -> tuple[tuple[str, Partitioned], ...]:
        """Return a pair for each remedy for communication `number`: the changed request, such as
        "params['w'] as [{}, {}]", and the program with this change. Pairs whose programs receive
        fewer bytes come first.

        Raises InputError if there is no such communication.
        """
        check_type(number, int, "the number of a communication, such as 3 for C3", "number")
        made: list[tuple[str, Partitioned]] = []
        for each in remedied(self.given, self.local, number):
            with contextlib.suppress(InputError):  # skip plans over the memory limit
                program = replace(self, given=each.given)
                if program.padding <= self.padding:
                    made.append((each.said, program))
        return tuple(sorted(made, key=lambda pair: pair[1].bytes_received))

    def with_remedy(self, number: int) -> Partitioned:
        """Return the program with the best remedy for communication `number`, even if the program
        then receives more bytes in total.

        Raises InputError if the communication has no remedy.
        """
        found = self.remedies(number)
        if not found:
            raise InputError(
                "there is no remedy for this communication",
                argument="number",
                got=f"{self.communications[number - 1]}",
                expected="the number of a communication for which plan --explain has a remedy",
            )
        return found[0][1]

    @functools.cached_property
    def kernel_choices(self) -> tuple[BesideMatmul, ...]:
        """The matmuls with an adjacent gather or scatter. Each states whether one kernel performs
        both, and why. Empty unless kernels are allowed."""
        if not self.kernels or self.topology is None:
            return ()
        return beside_matmuls(self.local, self.topology)

    def seconds(self, topology: str) -> tuple[float, ...]:
        """Return the seconds of each communication on a topology, as predicted by the network
        model: communications run in sequence and overlap no computation.

        Raises InputError for an unknown topology, or one with too few devices.
        """
        return seconds_of(self.local, topology)

    def to_json(self, topology: str | None = None, written: WrittenRows = NO_ROWS) -> str:
        """Return the arguments, results and communications as deterministic JSON, one line each.
        Include seconds if a topology is given, the cost and its lower bound if the mode is
        `cheapest` and, if `written` is given, how the module writes each communication: its
        function, the names that it assigns, their types and its comment."""
        seconds = () if topology is None else self.seconds(topology)
        bound = self.lower_bound
        costs = {} if bound is None else {"cost": math.ceil(self.cost), "lower_bound": bound}
        return program_json(self.local, topology, seconds, costs, written)

    @property
    def in_shardings(self) -> Any:
        """The sharding of each argument, in the tree of arguments."""
        program = self.program
        return self.inputs(tuple(program.values[v].sharding for v in program.body.arguments))

    @property
    def out_shardings(self) -> Any:
        """The sharding of each result, in the tree of results."""
        return self.outputs(self.program.results)

    @functools.cached_property
    def padding(self) -> int:
        """The number of elements of padding in the arguments and results of the emitted program, 0
        if the stated shardings divide them evenly."""
        given, local = self.given, self.local
        padded = (local.of(v) for v in (*local.body.arguments, *local.body.results))
        whole = (given.values[v] for v in (*given.body.arguments, *given.body.results))
        return sum(each.size for each in padded) - sum(each.size for each in whole)

    def pad(self, *arguments: Any, mesh: Any = None) -> tuple[Any, ...]:
        """Return the arguments as the emitted program takes them, in a tuple: zeros follow the ends
        of arrays whose shards are unequal. Arrays that are already padded stay as they are. Python
        numbers and NumPy arrays get the types that `jax.jit` gives them. With a jax mesh, all
        arrays are placed on its devices.

        Raises InputError for arguments that are not like the function's.
        """
        return pad(self, arguments, mesh)

    def unpad(self, results: Any, *, like: Any = None) -> Any:
        """Return results of the emitted program without their padding; NumPy arrays stay on the
        host, and other arrays that lose padding are copied to every device whole. With `like`,
        return the arrays of any other tree, such as gradients or one of the results, with the
        shapes of the arrays or jax.ShapeDtypeStructs in `like`, a tree of the same structure.

        Raises InputError for results that are not like the emitted program's, or not like
        `like`.
        """
        return unpad(self, results, like)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings about operations that stopped propagation."""
        return self.given.warnings

    def after(self, priority: int) -> Partitioned:
        """Return the program with user priorities propagated only up to this one.

        Raises InputError if no sharding has this priority.
        """
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
        """Return the steps by which a value received its sharding, back to an argument or a
        constraint.

        Raises InputError if the program has no value with this name.
        """
        return self.propagated.trail.why(self._named(value))

    def origins(self, value: str | Value) -> dict[str, str]:
        """Return, for each axis of a value's sharding, the name of the value or result from which
        it propagated.

        Raises InputError if the program has no value with this name.
        """
        return self.propagated.trail.origins(self._named(value))

    def _named(self, value: str | Value) -> str:
        check_type(value, str | Value, "a name such as 'tanh', or a Value of the program", "value")
        name = value.name if isinstance(value, Value) else value.removeprefix("%")
        names = [known.name for known in self.program.values]
        if name not in names:
            stem = name.rstrip("0123456789_")
            like = [known for known in names if name in known]
            like += [known for known in names if stem in known and known not in like]
            raise InputError(
                "the program has no value with this name",
                argument="value",
                got=name,
                expected=one_of((like or names)[:8]),
            )
        return name

    def __repr__(self) -> str:
        """Describe the program, with the bytes received if it is already planned."""
        given = self.given
        is_planned = "communications" in vars(self)
        received = f", receives {size_text(self.bytes_received)}" if is_planned else ""
        return (
            f"<Partitioned: {len(given.body.arguments)} arguments, {len(given.values)} values, "
            f"{len(given.results)} results, on {self.mesh.size} devices, "
            f"mode={self.mode!r}{received}>"
        )

    def __str__(self) -> str:
        return format_program(self.program)
