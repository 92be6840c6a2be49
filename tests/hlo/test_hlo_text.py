"""HLO read as text: computations, loops, collectives in parts, and lines of the user's program."""

from __future__ import annotations

import pytest

from shardwright.codegen.spec.hlo import collectives as hlo
from shardwright.codegen.spec.hlo.calls import executions, trip_count
from shardwright.codegen.spec.hlo.text import HloModule

HEAD = "HloModule jit_f, entry_computation_layout={(f32[8])->f32[8]}, num_partitions=4\n\n"
LOOP = """
%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %one = s32[] constant(STEP)
  %next = s32[] add(%i, %one)
  %sum = f32[8]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %sum)
}

%condition (p.1: (s32[], f32[8])) -> pred[] {
  %p.1 = (s32[], f32[8]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %end = s32[] constant(10)
  ROOT %lt = pred[] compare(%i.1, %end), direction=LT
}

ENTRY %main (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  %zero = s32[] START
  %start = (s32[], f32[8]{0}) tuple(%zero, %x.1)
  %while = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body
  ROOT %y = f32[8]{0} get-tuple-element(%while), index=1
}
"""
GROUPS = "channel_id=1, replica_groups={{0,1,2,3}}"


def looped(start: str = "constant(0)", step: int = 1) -> HloModule:
    return HloModule(HEAD + LOOP.replace("START", start).replace("STEP", str(step)))


def received(text: str) -> int | None:
    return hlo.received_bytes(HEAD + text, 4)


@pytest.mark.parametrize(
    ("start", "step", "turns"),
    [
        ("constant(0)", 1, 10),
        ("constant(3)", 1, 7),
        ("constant(0)", 4, 3),
        ("constant(12)", 1, 0),
        ("parameter(1)", 1, None),
    ],
)
def test_turns_of_a_loop(start: str, step: int, turns: int | None) -> None:
    module = looped(start, step)
    loop = module.computations["main"]["while"]
    assert trip_count(module, loop) == turns
    often = executions(module)["body"]
    assert (often.times, often.exact) == (1 if turns is None else turns, turns is not None)
    (summed,) = hlo.collectives_of(module, 4)
    assert summed.received(4).max() == 2 * 8 * 4 * 3 // 4 * often.times


def test_a_noted_count_is_taken() -> None:
    text = LOOP.replace("START", "parameter(1)").replace("STEP", "1")
    noted = ', backend_config={"known_trip_count":{"n":"6"}}'
    module = HloModule(HEAD + text.replace("body=%body", f"body=%body{noted}"))
    assert executions(module)["body"].times == 6


BRANCHES = """
%moves (m: f32[8]) -> f32[8] {
  %m = f32[8]{0} parameter(0)
  ROOT %moved = f32[8]{0} collective-permute(%m), channel_id=2, source_target_pairs={{0,1},{1,0}}
}

%stays (s: f32[8]) -> f32[8] {
  ROOT %s = f32[8]{0} parameter(0)
}
"""


@pytest.mark.parametrize(
    ("compared", "step", "taken"),
    [
        ("compare(%next, %limit), direction=LT", 1, 9),  # all turns but the last
        ("compare(%next, %limit), direction=LT", 4, 2),
        ("compare(%i, %limit), direction=GE", 1, 0),
        ("compare(%i, %one), direction=NE", 1, 9),
        ("compare(%x.2, %limit), direction=LT", 1, 10),  # of no counter: in every turn
    ],
)
def test_a_branch_counts_in_the_turns_in_which_it_is_taken(
    compared: str, step: int, taken: int
) -> None:
    said = f"""%limit = s32[] constant(10)
  %x.2 = s32[] convert(%x)
  %test = pred[] {compared}
  %sum = f32[8]{{0}} conditional(%test, %x, %x), true_computation=%moves, false_computation=%stays
"""
    text = LOOP.replace("START", "constant(0)").replace("STEP", str(step))
    line = next(each for each in text.splitlines() if "all-reduce" in each)
    text = text.replace(f"{line.strip()}\n", said)
    module = HloModule(HEAD + BRANCHES + text)
    turns = executions(module)["body"].times
    often = {name: each.times for name, each in executions(module).items()}
    assert often["moves"] == taken
    assert often["stays"] == (turns if taken == turns else turns - taken)
    (moved,) = hlo.collectives_of(module, 4)
    assert moved.received(4).max() == 8 * 4 * taken


def test_names_without_percent_and_operands_with_types() -> None:
    """As `--xla_dump_to` writes it."""
    text = LOOP.replace("START", "constant(0)").replace("STEP", "1").replace("%", "")
    text = text.replace("while(start)", "while((s32[], f32[8]{0}) start)")
    assert executions(HloModule(HEAD + text))["body"].times == 10


@pytest.mark.parametrize(
    ("start", "done", "size"),
    [
        (
            "(f32[2]{0}, f32[8]{0}) all-gather-start(%x)",
            "f32[8]{0} all-gather-done(%s)",
            8 * 4 * 3 // 4,
        ),
        (
            "((f32[2]{0}, f32[4]{0}), (f32[8]{0}, f32[16]{0})) all-gather-start(%x, %x)",
            "(f32[8]{0}, f32[16]{0}) all-gather-done(%s)",
            24 * 4 * 3 // 4,
        ),
        (
            "(f32[8]{0}, f32[8]{0}) all-reduce-start(%x, %x)",
            "(f32[8]{0}, f32[8]{0}) all-reduce-done(%s)",
            2 * 16 * 4 * 3 // 4,
        ),
    ],
)
def test_a_collective_in_two_parts_counts_once(start: str, done: str, size: int) -> None:
    first = f"ENTRY %main (x: f32[8]) -> f32[8] {{\n  %s = {start}, {GROUPS}\n"
    assert received(f"{first}  ROOT %d = {done}\n}}\n") == size
    assert received(f"{first}}}\n") == size  # the second part is not there


def test_an_asynchronous_computation_counts_once() -> None:
    text = f"""
%wrapped (q: f32[8]) -> f32[2] {{
  %q = f32[8]{{0}} parameter(0)
  ROOT %r = f32[2]{{0}} reduce-scatter(%q), {GROUPS}, dimensions={{0}}, to_apply=%add
}}

ENTRY %main (x: f32[8]) -> f32[2] {{
  %x = f32[8]{{0}} parameter(0)
  %s = ((f32[8]{{0}}), f32[2]{{0}}, u32[]) async-start(%x), calls=%wrapped
  ROOT %d = f32[2]{{0}} async-done(%s), calls=%wrapped
}}
"""
    assert received(text) == 2 * 4 * 3


def test_sends_and_receives_of_a_pipeline_are_a_permute() -> None:
    pairs = "_xla_send_recv_source_target_pairs={{0,1},{1,2}}"
    text = f"""
ENTRY %main (x: f32[8]) -> f32[8] {{
  %recv = (f32[8]{{0}}, u32[], token[]) recv(%token), frontend_attributes={{{pairs}}}
  %send = (f32[8]{{0}}, u32[], token[]) send(%x, %token), frontend_attributes={{{pairs}}}
}}
"""
    assert received(text) == 32


CHAIN = """
%first (p: f32[2]) -> (f32[2], f32[8]) {
  %p = f32[2]{0} parameter(0)
  %g.1 = f32[8]{0} all-gather(%p), GROUPS, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %c = (f32[2]{0}, f32[8]{0}) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"
}

%second (p.1: f32[2]) -> f32[8] {
  %p.1 = f32[2]{0} parameter(0)
  ROOT %g.2 = f32[8]{0} all-gather(%p.1), GROUPS, dimensions={0}, frontend_attributes={chain_id="0"}
}

ENTRY %main (x: f32[2]) -> f32[8] {
  %x = f32[2]{0} parameter(0)
  %a = (f32[2]{0}, f32[8]{0}) fusion(%x), kind=kCustom, calls=%first
  ROOT %b = f32[8]{0} fusion(%x), kind=kCustom, calls=%second
}
""".replace("GROUPS", GROUPS)


def test_parts_of_a_chain_count_once() -> None:
    assert received(CHAIN) == 24
    assert received(CHAIN.replace("AsyncCollectiveStart", "Other")) == 24
    # Another chain is another collective, and what is called twice counts twice.
    assert received(CHAIN.replace('chain_id="0"', 'chain_id="1"', 1)) == 48
    again = CHAIN.replace("  ROOT %b", "  %a.2 = (f32[2]{0}) fusion(%x), calls=%first\n  ROOT %b")
    assert received(again) == 48


def test_lines_of_the_program() -> None:
    old = (
        '  %g = f32[8]{0} all-gather(%x), metadata={op_name="f" source_file="a.py" source_line=7}\n'
    )
    module = HloModule(f"{HEAD}ENTRY %main (x: f32[8]) -> f32[8] {{\n{old}}}\n")
    assert module.line(module.computations["main"]["g"]) == "a.py:7"
    new = old.replace('source_file="a.py" source_line=7', "stack_frame_id=2")
    tables = (
        'FileNames\n1 "/x/b.py"\n2 "/x/c.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "1 {file_name_id=2 function_name_id=1 line=4 end_line=4}\n"
        "2 {file_name_id=1 function_name_id=1 line=9 end_line=9}\n\n"
        "StackFrames\n1 {file_location_id=1}\n2 {file_location_id=2 parent_frame_id=1}\n\n"
    )
    module = HloModule(f"{HEAD}{tables}ENTRY %main (x: f32[8]) -> f32[8] {{\n{new}}}\n")
    assert module.line(module.computations["main"]["g"]) == "/x/b.py:9"
