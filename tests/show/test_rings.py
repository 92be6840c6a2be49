"""Rings of a sum: their steps against the definition and the module, text, picture, pages."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import run
from gpu_cases import make
from lone import alone
from strategies import exactly
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.backends.pallas_tpu.timeline import rings_of
from shardwright.codegen.checks.load import load
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.network.rings import Rings
from shardwright.codegen.operations.emit.ways import reduced_by, rings_by
from shardwright.codegen.show.rings import rings_svg, rings_text
from shardwright.ir.plan import Plan

BACKENDS = ("pallas_tpu", "triton_gpu")
SLOW = "torus:{},wrap={},bandwidth=1e6,latency=1e-12"
CASES = {
    "wrapped": ({"x": 8}, '[{}, {}], unreduced={"x"}', '[{"x"}, {}]', SLOW.format("8", 1)),
    "folded": ({"x": 6}, '[{}, {}], unreduced={"x"}', '[{}, {"x"}]', SLOW.format("6", 0)),
    "two": (
        {"x": 4, "y": 2},
        '[{}, {}], unreduced={"x", "y"}',
        '[{"x"}, {"y"}]',
        SLOW.format("2x4", "0x0"),
    ),
    "beside": (
        {"z": 2, "x": 4},
        '[{"z"}, {}], unreduced={"x"}',
        '[{"z"}, {"x"}]',
        SLOW.format("2x4", "0x0"),
    ),
    "copied": ({"x": 8}, '[{}, {}], unreduced={"x"}', "[{}, {}]", SLOW.format("8", 1)),
    "many": ({"x": 24}, '[{}, {}], unreduced={"x"}', '[{"x"}, {}]', SLOW.format("24", 1)),
}
FEW = [name for name in CASES if name != "many"]
"""Those of at most eight devices."""


def planned(name: str) -> Plan:
    axes, source, target, topology = CASES[name]
    return plan(make(axes, (192, 240), source, target), "direct", topology=topology)


def rings(name: str) -> Rings:
    return rings_by(planned(name), BACKENDS)["pallas_tpu"]


def reduced(of: Rings) -> dict[tuple[int, bool], set[int]]:
    """The terms in the half of every part on the device that keeps it, by carrying out the steps:
    every device adds its own to what has come. A term that would count twice fails."""
    had: dict[tuple[int, int, bool], set[int]] = defaultdict(set)
    own = {(device, part, up): {device} for device in of.ids for part in of.ids for up in (0, 1)}
    had.update({key: set(terms) for key, terms in own.items()})
    for step in of.steps:
        come = []
        for each in step.passed:
            for part in each.parts:
                terms = had[each.sender, part, each.upwards]
                assert len(terms) == each.terms
                come.append(((each.receiver, part, each.upwards), terms))
        for key, terms in come:
            assert not had[key] & terms, "a term counts twice"
            had[key] = had[key] | terms
    return {(part, up): had[part, part, up] for part in of.ids for up in (False, True)}


def groups(name: str) -> dict[int, set[int]]:
    """The devices whose terms a device's part has, by the exchange in the place of the rings."""
    made = rings_of(planned(name))
    assert made is not None
    found = defaultdict(set)
    for transfer in json.loads(made.plan.to_json())["steps"][0]["transfers"]:
        found[transfer["to"]].add(transfer["from"])
    return found


@pytest.mark.parametrize("name", sampled(CASES, *FEW))
def test_every_term_counts_once(name: str) -> None:
    wanted = groups(name)
    assert reduced(rings(name)) == {
        (device, up): wanted[device] for device in wanted for up in (False, True)
    }


def test_a_step_left_out_shows() -> None:
    whole = rings("wrapped")
    less = replace(whole, steps=whole.steps[:-1])
    assert all(len(terms) == 1 for terms in reduced(less).values())
    with pytest.raises(AssertionError):
        reduced(replace(whole, steps=(*whole.steps[:3], *whole.steps[2:])))


@pytest.mark.parametrize("name", sampled(CASES, *FEW))
def test_the_module_goes_the_same_way(name: str, tmp_path: Path) -> None:
    """To the same neighbours, as many bytes."""
    pytest.importorskip("jax")
    found, made = rings(name), planned(name)
    path = tmp_path / "ring.py"
    path.write_text(alone(made, "pallas_tpu"))
    module = load(path)
    program = module._PROGRAM.first if hasattr(module._PROGRAM, "first") else module._PROGRAM
    steps = iter(found.steps)
    for turn in program.rounds:
        for _, step in zip(range(turn.size - 1), steps, strict=False):
            for device in found.ids:
                sent = {
                    each.upwards: each.receiver for each in step.passed if each.sender == device
                }
                after, before = turn.neighbours(found.ids.index(device))
                assert sent == {True: found.ids[int(after)], False: found.ids[int(before)]}
    into: dict[int, int] = defaultdict(int)
    for each in (each for step in found.steps for each in step.passed):
        into[each.receiver] += len(each.parts) * found.nbytes
    form = rings_of(made)
    assert form is not None
    assert {*into.values()} == {form.wire_bytes}


FOUR = make({"x": 4}, (64, 128), '[{}, {}], unreduced={"x"}', '[{"x"}, {}]')


def test_text() -> None:
    made = plan(FOUR, "direct", topology=SLOW.format("4", 1))
    assert rings_text(rings_by(made, BACKENDS)["pallas_tpu"]) == exactly(
        """
        Terms are reduced on rings along "x".
        In each step every device combines its own terms of a part with the terms received so
        far, and sends the result on: half of each part upwards, half downwards. A part is named
        after the device that keeps it; half a part takes 4,096 bytes with padding.

        device                 0            1            2            3
        step 1 of 3 along "x"  up 3 down 1  up 0 down 2  up 1 down 3  up 2 down 0
        step 2 of 3 along "x"  up 2 down 2  up 3 down 3  up 0 down 0  up 1 down 1
        step 3 of 3 along "x"  up 1 down 3  up 2 down 0  up 3 down 1  up 0 down 2
        """
    )


def test_of_many_devices_few_are_shown() -> None:
    found = rings("many")
    assert rings_svg(found, "a title") is None
    assert rings_text(found).endswith("and so on, for 24 devices")


@pytest.mark.parametrize("name", ["wrapped", "two"])
def test_pictures(name: str) -> None:
    """A box for each direction of each device in each step, a line to where it goes."""
    found = rings(name)
    text = rings_svg(found, 'a "title" < another')
    assert text == rings_svg(found, 'a "title" < another')
    picture = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    passed = sum(len(step.passed) for step in found.steps)
    assert len(picture.findall(f".//{space}path")) == passed
    assert len(picture.findall(f".//{space}rect")) == 1 + passed + len(found.ids)
    assert all(step.what in "".join(picture.itertext()) for step in found.steps)


def test_how_terms_are_reduced() -> None:
    """By what is taken: rings, an exchange, two, collectives; nothing of what has no terms."""
    said = {name: reduced_by(planned(name), BACKENDS)["pallas_tpu"] for name in CASES}
    assert said["two"] == 'rings along "x", then "y"'
    assert said["copied"] == 'rings along "x", then an exchange of parts'
    on_switch = plan(FOUR, "direct", topology="switch:4,latency=1e-12")
    assert reduced_by(on_switch, BACKENDS) == dict.fromkeys(BACKENDS, "an exchange of terms")
    copied = plan(make({"x": 4}, (512, 512), CASES["two"][1].replace(', "y"', ""), "[{}, {}]"))
    assert reduced_by(copied, ("jax_xla", "triton_gpu")) == {"jax_xla": "collectives: all_reduce"}
    assert reduced_by(plan(make({"x": 4}, (8,), '[{"x"}]', "[{}]")), BACKENDS) == {}
    two = plan(copied.reshard, "direct", topology="switch:4,latency=1e-12")
    assert reduced_by(two, ("triton_gpu",)) == {
        "triton_gpu": "exchanges, of terms of parts and then of parts"
    }


def test_bundles(tmp_path: Path) -> None:
    """The page names the rings, has their picture, and no other form as chosen."""
    sw.emit(planned("wrapped"), ("pallas_tpu",)).write(tmp_path / "ring")
    page = (tmp_path / "ring/README.md").read_text()
    assert 'pallas_tpu reduces terms with rings along "x"' in page
    assert page.count("(chosen)") == 1
    assert '| ring along "x" (chosen) |' in page
    assert "(rings.svg)" in page
    assert "step 7 of 7" in (tmp_path / "ring/rings.svg").read_text()
    listed = json.loads((tmp_path / "ring/plan.json").read_text())
    assert listed["reduced_by"] == {"pallas_tpu": 'rings along "x"'}
    sw.emit(FOUR, ("pallas_tpu",)).write(tmp_path / "direct")
    assert not (tmp_path / "direct/rings.svg").exists()
    assert "rings.svg" not in (tmp_path / "direct/README.md").read_text()


def test_commands(tmp_path: Path) -> None:
    """`plan` and `plan --json` say how terms are reduced; `show` has the rings, as text and svg."""
    words = ["--mesh", "x=4", "--shape", "64x128", "--dtype", "f32"]
    words += ["--source", '[{}, {}], unreduced={"x"}', "--target", '[{"x"}, {}]']
    ringed = [*words, "--topology", SLOW.format("4", 1)]
    assert 'pallas_tpu reduces terms with rings along "x"\n' in run("plan", *ringed).out
    found = json.loads(run("plan", *ringed, "--json").out)["reduced_by"]
    assert found == {"pallas_tpu": 'rings along "x"', "triton_gpu": "an exchange of terms"}
    assert "step 3 of 3 along" in run("show", *ringed).out
    assert "step 3 of 3 along" not in run("show", *words).out
    for given, name, is_ring in ((ringed, "ring", True), (words, "tiles", False)):
        path = tmp_path / f"{name}.svg"
        assert run("show", *given, "--svg", path).code == 0
        assert ("step 3 of 3" in path.read_text()) == is_ring
