"""Programs as text: printed, read, checked; and what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from commands import mistake, ok

from shardwright.codegen.propagate.checked import check_propagated
from shardwright.codegen.propagate.propagation import propagate
from shardwright.codegen.show.program import show_program
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.program import Body, Op, Program
from shardwright.ir.program_check import well_formed
from shardwright.ir.program_parse import parse_program
from shardwright.ir.program_text import format_program, format_rule, parse_rule

MLP = """\
@mesh = <["d"=4, "t"=2]>
program mlp(%x: f32[8,16] [{"d"}, {}], %w: f32[16,32] [{}, {"t"}]) -> (_, [{"d"}p1, {?}]) {
  %h: f32[8,32] = dot_general(%x, %w) {batch_lhs=(), batch_rhs=(), contract_lhs=(1), \
contract_rhs=(0)}  // mlp.py:3
  %k: f32[8,32] [{?}, {?}] = opaque(%h) {flag=true, name="a b", none=none, size=1.5} \
rule=([i, j])->([i, j]) {i=8, j=32} need_replication={j}
  %s: f32[8,32] = scan(%h) {length=3, lengths=(0, 1, 0), reverse=false} (%c: f32[8,32]) {
    %e: f32[8,32] = exp(%c)
    return %e
  }
  return %k, %s
  alike %h, %k
}
"""


def test_what_a_sharding_can_say_is_read() -> None:
    said = '[{"d"}, {?}p2], replicated={"t":(1)2}, unreduced=max{"t":(2)2}'
    text = MLP.replace('"t"=2', '"t"=4').replace('[{"d"}, {}]', said)
    assert format_program(parse_program(text)) == text


def test_the_text_is_read_and_printed() -> None:
    program = well_formed(parse_program(MLP))
    assert format_program(program) == MLP
    assert parse_program(format_program(program)) == program


def test_propagation_of_a_text() -> None:
    text = MLP.replace("  alike %h, %k\n", "").replace("_, [{", "[{?}, {?}], [{", 1)
    program = well_formed(propagate(parse_program(text)).program)
    assert str(program.value("h").sharding) == '[{"d", ?}, {"t", ?}]'
    assert str(program.value("k").sharding) == '[{"d", ?}, {"t", ?}]'
    assert str(program.value("e").sharding) == '[{"d", ?}, {"t", ?}]'


RESHAPE = """\
@mesh = <["x"=4]>
program split(%a: f32[8] [{"x"}]) -> (_) {
  %b: f32[2,4] = reshape(%a)
  return %b
}
"""


def test_a_reshape_splits_an_axis_so_that_nothing_moves() -> None:
    """The example of sub-axes: 8 over x=4 into 2 x 4 keeps every element where it is."""
    propagated = propagate(parse_program(RESHAPE))
    source, target = propagated.program.value("a"), propagated.program.value("b")
    assert str(target.sharding) == '[{"x":(1)2, ?}, {"x":(2)2, ?}]'
    assert source.sharding is not None
    assert target.sharding is not None
    assert source.sharding.local_shape((8,)) == (2,)
    assert target.sharding.local_shape((2, 4)) == (1, 2)
    for device in range(4):  # element i of a is (i div 4, i mod 4) of b
        first = device * 2
        row, column = (device // 2), (device % 2) * 2
        assert [divmod(first + i, 4) for i in range(2)] == [(row, column), (row, column + 1)]
    (change,) = propagated.trail.why("b")[:1]
    assert str(change) == (
        '%b dimension 0 got "x":(1)2 from %a through reshape, priority p0, op priority 0'
    )


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        (
            MLP.replace("exp(%c)", "exp(%z)"),
            "a value must be defined before it is used",
            "    %e: f32[8,32] = exp(%z)\n                          ^^",
        ),
        (
            MLP.replace("%k: f32[8,32] [{?}", "%h: f32[8,32] [{?}"),
            "a value must be defined once",
            "  %h: f32[8,32] [{?}, {?}] = opaque",
        ),
        (
            MLP.replace('[{}, {"t"}]', '[{}, {"u"}]'),
            "an axis must exist in the mesh",
            'expected: one of "d", "t"',
        ),
        (
            MLP.replace('[{}, {"t"}]', '[{"t"}]'),
            "a sharding must have the rank of its value",
            'got: [{"t"}]',
        ),
        (MLP.replace("return %e", "retrun %e"), "the text is not a valid program", "retrun"),
        (
            MLP.replace("return %k, %s", "return %k, %e"),
            "a value must be defined before it is used",
            "  return %k, %e\n               ^^",
        ),
        (
            MLP.replace("lengths=(0, 1, 0)", "lengths=(0, 2, 0)"),
            "the lengths of scan must add up to the number of its operands",
            "got: %s: f32[8,32] = scan(%h) {length=3, lengths=(0, 2, 0), reverse=false} (",
        ),
        (
            MLP.replace("%c: f32[8,32]", "%c: f32[8,16]").replace("%e: f32[8,32]", "%e: f32[8,16]"),
            "the constants and carries of scan must fit the arguments of its body",
            "got: %s: f32[8,32] = scan(%h)",
        ),
        (
            MLP.replace("rule=([i, j])->([i, j])", "rule=([i, k])->([i, j])"),
            "a rule must give the size of every factor",
            "^^^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            MLP.replace("contract_lhs=(1)", "contract_lhs=(7)"),
            "the parameters and shapes of dot_general must fit its sharding rule",
            "got: %h: f32[8,32] = dot_general(%x, %w) {",
        ),
        (
            MLP.replace("exp(%c)", "add(%c, %x)"),
            "the operands of add must have the shape of its result",
            "got: %e: f32[8,32] = add(%c, %x)",
        ),
        (MLP.replace("(_, [", "(_, _, ["), "each result must have a sharding, or _", "(_, _, [{"),
        (
            MLP.replace("alike %h, %k", "alike %h, %x"),
            "values of a group must have the same shape",
            "  alike %h, %x\n    ^^^^^^^^^^^^",
        ),
        (
            MLP.replace('@mesh = <["d"=4, "t"=2]>', ""),
            "a program with shardings must have a mesh",
            'got: [{"d"}, {}]',
        ),
    ],
)
def test_mistakes_in_the_text_are_located(text: str, rule: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_program(text, check_propagated)
    assert rule in str(caught.value)
    assert line in str(caught.value)


def with_op(program: Program, number: int, **changes: object) -> Program:
    ops = list(program.body.ops)
    ops[number] = replace(ops[number], **changes)  # type: ignore[arg-type]
    return replace(program, body=replace(program.body, ops=tuple(ops)))


PROGRAM = parse_program(MLP)


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (with_op(PROGRAM, 0, operands=(3, 1)), "%k must be defined before dot_general uses it"),
        (with_op(PROGRAM, 1, results=(2,)), "%h must be defined only once"),
        (with_op(PROGRAM, 2, bodies=()), "scan must not have 0 bodies"),
        (
            with_op(PROGRAM, 2, operands=(0,)),
            "the constants and carries of scan must fit the arguments of its body",
        ),
        (
            with_op(PROGRAM, 0, params=(("b", 1), ("a", 1))),
            "the parameters of dot_general must be sorted",
        ),
        (replace(PROGRAM, results=()), "each result must have a sharding"),
        (replace(PROGRAM, meshes=()), "the mesh of %x must be in the program"),
        (replace(PROGRAM, groups=((0, 1),)), "the values of a group must have the same shape"),
        (replace(PROGRAM, body=Body((0, 1), (), (0, 1))), "every value must be defined"),
        (
            with_op(PROGRAM, 1, rule=parse_rule("([i])->([i, j]) {i=8, j=32}")),
            "the rule of opaque must have the rank of each tensor",
        ),
    ],
)
def test_what_is_not_well_formed_is_found(planted: Program, rule: str) -> None:
    with pytest.raises(InternalError, match="not well formed") as caught:
        well_formed(planted)
    assert rule in str(caught.value)


def test_rules_are_read_and_printed() -> None:
    text = "([i, k], [kl, j])->([i, j]) {i=8, k=2, l=2, j=8} reduction={k} permutation={i}"
    rule = parse_rule(text)
    assert format_rule(rule) == (
        "([i, j], [jk, l])->([i, l]) {i=8, j=2, k=2, l=8} reduction={j} permutation={i}"
    )
    assert parse_rule(format_rule(rule)) == rule


def test_a_program_is_shown_beside_the_lines_of_its_source() -> None:
    shown = show_program(propagate(parse_program(MLP.replace("  alike %h, %k\n", ""))).program)
    assert shown.startswith(
        'mesh <["d"=4, "t"=2]>\nmlp:\n    x: f32[8@d,16]\n    w: f32[16,32@t]\n'
    )
    assert "  mlp.py:3\n    h: f32[8@d,32@t] = dot_general(x, w)\n" in shown
    assert shown.endswith("    return k: f32[8@d,32@t], s: f32[8@d,32@t]\n")


def test_the_command_shows_a_program(tmp_path: Path) -> None:
    file = tmp_path / "split.program"
    file.write_text(RESHAPE)
    assert "b: f32[2@x:(1)2,4@x:(2)2] = reshape(a)" in ok("show", file)
    file.write_text(RESHAPE.replace("%a)", "%q)"))
    assert mistake("show", file) == (
        f"{file}: a value must be defined before it is used\n"
        "    %b: f32[2,4] = reshape(%q)\n                           ^^\ngot: %q"
    )


def test_the_command_says_what_has_no_rule(tmp_path: Path) -> None:
    file = tmp_path / "new.program"
    file.write_text(RESHAPE.replace("reshape(%a)", "frobnicate(%a)"))
    shown = ok("show", file)
    assert shown.endswith("warning: frobnicate has no rule: its operands are replicated\n")


def test_an_op_without_a_parameter_says_so() -> None:
    with pytest.raises(InternalError, match="exp has no parameter 'axes'"):
        Op("exp", (), ()).param("axes")
