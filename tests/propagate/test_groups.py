"""Groups of values that are sharded alike (`shard_alike`), given as texts of programs."""

from __future__ import annotations

import pytest

from shardwright.codegen.propagate.groups import joined, with_agreed_groups
from shardwright.codegen.propagate.propagation import propagate
from shardwright.ir.program import Program
from shardwright.ir.program_check import well_formed
from shardwright.ir.program_parse import parse_program
from shardwright.ir.program_text import format_program

TEXT = """\
@mesh = <["a"=2, "b"=2, "c"=4]>
program alike(%x: f32[16], %y: f32[16], %z: f32[16]) -> (_, _, _) {
  %p: f32[16] FIRST = constrain(%x)
  %q: f32[16] SECOND = constrain(%y)
  %r: f32[16] = exp(%z)
  %s: f32[16] = sin(%p)
  %t: f32[16] = sin(%q)
  return %s, %t, %r
  alike %p, %q, %r
}
"""


def program(first: str, second: str) -> Program:
    return well_formed(parse_program(TEXT.replace("FIRST", first).replace("SECOND", second)))


def found(given: Program, *names: str) -> list[str]:
    done = well_formed(propagate(given).program)
    return [str(done.value(name).sharding) for name in names]


def test_one_sharding_that_is_given_is_that_of_all() -> None:
    given = program('[{"c"}]', '[{?}], replicated={"a"}')
    assert found(given, "p", "q", "r", "t") == ['[{"c"}]', '[{"c"}]', '[{"c"}]', '[{"c", ?}]']
    agreed, copies = with_agreed_groups(given)
    assert [copy.target for copy in copies] == [given.body.ops[i].results[0] for i in (1, 2)]
    assert with_agreed_groups(agreed) == (agreed, ())
    (change,) = propagate(given).trail.why("r")
    assert str(change) == (
        '%r dimension 0 got "c" from %p through alike, priority p0, op priority 0'
    )


def test_of_several_the_one_that_changes_first_decides() -> None:
    """Each member keeps what it was given; a constraint after it is sharded like the group."""
    given = program('[{"c"}]', '[{"b", ?}]')
    agreed = well_formed(with_agreed_groups(given)[0])
    assert with_agreed_groups(agreed) == (agreed, ())
    assert [agreed.values[member].name for member in agreed.groups[0]] == [
        "alike_0",
        "alike_1",
        "alike_2",
    ]
    assert "%s: f32[16] = sin(%alike_0)" in format_program(agreed)
    assert found(given, "p", "q", "r") == ['[{"c"}]', '[{"b", ?}]', '[{"c", ?}]']
    assert found(given, "alike_0", "alike_1", "alike_2") == ['[{"c", ?}]'] * 3
    assert found(given, "s", "t") == ['[{"c", ?}]'] * 2


def test_what_a_member_gets_is_copied_as_it_is() -> None:
    """What the others had is overwritten: a copy is no propagation along a factor."""
    given = program('[{?}], replicated={"a"}', "[{?}]")
    text = format_program(given).replace("%z: f32[16]", '%z: f32[16] [{"a", ?}]')
    assert found(parse_program(text), "p", "q", "r") == ['[{"a", ?}]'] * 3
    (change, *_) = propagate(parse_program(text)).trail.why("p")
    assert str(change) == (
        '%p dimension 0 got "a" from %r through alike, priority p0, op priority 0'
    )


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ((), ()),
        (((1, 2), (3, 4)), ((1, 2), (3, 4))),
        (((1, 2), (3, 4), (4, 2)), ((1, 2, 3, 4),)),
        (((1, 2), (5, 6), (2, 3)), ((5, 6), (1, 2, 3))),
    ],
)
def test_groups_that_share_a_value_are_one(
    groups: tuple[tuple[int, ...], ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert joined(groups) == expected
