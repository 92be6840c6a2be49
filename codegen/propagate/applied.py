"""Apply constraints to their operands as well as their results.

A closed sharding does not propagate. So if all constraints on a value agree, the value gets a copy
of their sharding. If a chain of constraints follows a value, later uses of the value use the end of
the chain.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from shardwright.codegen.propagate.graph import ShardingCopy
from shardwright.ir.program import Body, Op, Program
from shardwright.ir.sharding import Sharding

Users = dict[int, list[Op]]
BINDING = frozenset({"constrain", "manual"})
LOOPS = frozenset({"scan", "while", "cond"})


def apply_constraints(program: Program) -> tuple[Program, tuple[ShardingCopy, ...]]:
    """Return the program with its constraints applied to their operands, and the shardings that
    were copied.

    Applying this twice changes nothing more.
    """
    applied = _Applied(program)
    body = applied.body(program.body, program.body.arguments)
    return replace(program, values=tuple(applied.values), body=body), tuple(applied.copies)


class _Applied:
    def __init__(self, program: Program) -> None:
        self.values = list(program.values)
        self.copies: list[ShardingCopy] = []
        self.edges: set[int] = set()  # values on an edge of a loop
        self.outside: dict[int, int] = {}  # operands behind the arguments of recomputed bodies

    def body(self, body: Body, arguments: tuple[int, ...]) -> Body:
        users, made = _users(body), {r: op for op in body.ops for r in op.results}
        # value -> (its replacement, the index of the first op that uses it)
        renamed: dict[int, tuple[int, int]] = {}
        for number, op in enumerate(body.ops):
            if op.kind == "constrain":
                self._copy(op, users, made)
                self._chain(body, number, users, made, renamed)
        ops = []
        for number, op in enumerate(body.ops):
            bodies = tuple(self._inner(op, inner) for inner in op.bodies)
            operands = tuple(
                renamed[v][0] if v in renamed and number > renamed[v][1] else v for v in op.operands
            )
            ops.append(replace(op, operands=operands, bodies=bodies))
        return Body(body.arguments, tuple(ops), body.results)

    def _inner(self, op: Op, body: Body) -> Body:
        if op.kind in LOOPS and op.kind != "cond":
            self.edges.update(body.arguments)
        if op.kind == "remat":
            self.outside.update(zip(body.arguments, op.operands, strict=True))
        return self.body(body, body.arguments)

    def _copy(self, op: Op, users: Users, made: dict[int, Op]) -> None:
        (operand,) = op.operands
        sharding = self.values[op.results[0]].sharding
        source = made.get(operand)
        if sharding is None or self.values[operand].sharding is not None:
            return
        if operand in self.edges or (source is not None and source.kind in LOOPS):
            return
        if any(dim.open for dim in sharding.dims):
            return
        others = [user for user in users[operand] if user.kind in BINDING and user is not op]
        if any(self._asked(user, operand) != sharding for user in others):
            return
        self.values[operand] = replace(self.values[operand], sharding=sharding)
        outside = self.outside.get(operand)
        if outside is not None and self.values[outside].sharding is None:
            self.values[outside] = replace(self.values[outside], sharding=sharding)
        self.copies.append(ShardingCopy(op.results[0], operand, op.kind, op.line))

    def _asked(self, user: Op, operand: int) -> Sharding | None:
        if user.kind == "constrain":
            return self.values[user.results[0]].sharding
        asked = user.param("in_shardings")
        place = user.operands.index(operand)
        found = asked[place] if isinstance(asked, tuple) else None
        return found if isinstance(found, Sharding) else None

    def _chain(
        self,
        body: Body,
        number: int,
        users: Users,
        made: dict[int, Op],
        renamed: dict[int, tuple[int, int]],
    ) -> None:
        """If a chain of at least two constraints starts at op `number`, make later ops use the end
        of the chain in place of its head. A returned value stays the head."""
        op = body.ops[number]
        (head,) = op.operands
        if made.get(head) is not None and made[head].kind == "constrain":
            return
        if [user for user in users[head] if user.kind in BINDING] != [op]:
            return
        last = op
        while True:
            following = users[last.results[0]]
            bound = [user for user in following if user.kind in BINDING]
            returned = last.results[0] in body.results
            if not bound:
                break
            if len(following) > 1 or returned or bound[0].kind != "constrain":
                return
            last = bound[0]
        if last is not op:
            renamed[head] = (last.results[0], body.ops.index(last))


def _users(body: Body) -> Users:
    users: Users = defaultdict(list)
    for op in body.ops:
        for operand in op.operands:
            users[operand].append(op)
    return users
