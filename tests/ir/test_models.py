"""Plans of models: what they move against the oracle's numbers, and their proofs against faults."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_layouts import ModelCase, model_case
from places import ROOT
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.spec.config import read_config
from shardwright.ir.model_moves import moved
from shardwright.ir.model_proof import prove
from shardwright.ir.part_digits import ProofError


def marked(cases: Iterable[object]) -> list[Any]:
    """Cases for the longest sweep alone."""
    return [pytest.param(case, marks=pytest.mark.exhaustive) for case in cases]


Held = dict[int, dict[str, np.ndarray]]


@pytest.mark.parametrize("number", range(5))
def test_random(number: int) -> None:
    check(model_case(number))


@pytest.mark.slow
@pytest.mark.parametrize("first", [5, *marked(range(25, 205, 20))])
def test_more_at_random(first: int) -> None:
    for number in range(first, first + 20):
        check(model_case(number))


def check(case: ModelCase) -> None:
    weights = sw.sync(case.model(), case.rules("source"), case.rules("target"))
    expected = case.held("target")
    assert_same(weights.local(case.held("source")), expected)
    assert weights.proof.elements == sum(
        int((each > 0).sum()) for of_device in expected.values() for each in of_device.values()
    )
    plan = weights.plan
    lacked = of_devices(lacking(case))
    assert plan.received == {device: lacked.get(device, 0) for device in plan.received}
    assert sum(plan.sent.values()) == plan.total
    for number, fault in enumerate(faults(weights.data, random.Random(plan.total))):
        assert not passes(plan, fault) or same(moved(fault, case.held("source")), expected), number


def assert_same(got: Held, expected: Held) -> None:
    """The same arrays; those without elements have no certain shape."""
    assert got.keys() == expected.keys()
    for device, of_device in expected.items():
        for name, wanted in of_device.items():
            found = got[device][name]
            np.testing.assert_array_equal(
                found.reshape(wanted.shape) if not wanted.size else found, wanted
            )


def same(got: Held, expected: Held) -> bool:
    try:
        assert_same(got, expected)
    except AssertionError:
        return False
    return True


def lacking(case: ModelCase) -> Iterator[tuple[int, int]]:
    """Of each tensor in each target buffer, the device and the bytes that it has not in the source
    buffer of the tensor."""
    source, target = (case.held(end) for end in ("source", "target"))
    for number, relayout in enumerate(case.relayouts):
        first = 1
        for tensor, shape in relayout.source.tensors.items():
            last = first + int(np.prod(shape))
            home = next(
                name
                for name, layout in relayout.source.buffers.items()
                if tensor in [part.tensor for part in getattr(layout, "parts", (layout,))]
            )
            for device in relayout.target.mesh.device_ids:
                had = source.get(device, {}).get(f"m{number}.{home}", np.zeros(0))
                for name in relayout.target.buffers:
                    wanted = target[device][f"m{number}.{name}"]
                    own = wanted[(wanted >= first) & (wanted < last)]
                    yield device, 8 * len({*own.tolist()} - {*had.reshape(-1).tolist()})
            first = last


def of_devices(given: Iterator[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for device, count in given:
        found[device] = found.get(device, 0) + count
    return found


def passes(plan: sw.ModelPlan, data: dict[str, Any]) -> bool:
    try:
        prove(plan, data)
    except ProofError:
        return False
    return True


def faults(data: dict[str, Any], chosen: random.Random) -> Iterator[dict[str, Any]]:
    """Data with a number changed, a relay lost, or a relay made twice."""
    for _ in range(6):
        found = copy.deepcopy(data)
        kind = chosen.choice(found["kinds"])
        if not (relays := kind["relays"]):
            continue
        relay = chosen.choice(relays)
        match chosen.randrange(5):
            case 0:
                place = chosen.randrange(3, len(relay))
                relay[place] = max(relay[place] + chosen.choice([-1, 1]), 0)
            case 1:
                relays.remove(relay)
            case 2:
                relays.append([*relay])
            case 3:
                relay[0] = chosen.randrange(len(kind["senders"]))
            case _:
                other = chosen.choice(relays)
                relay[3], other[3] = other[3], relay[3]
        yield found


STAGES = {
    f"layer{stage}": {"layout": "_[{a}]", "mesh": sw.Mesh({"a": 2}, [2 * stage, 2 * stage + 1])}
    for stage in (0, 1)
}


def test_stages() -> None:
    """Layers on devices of their own, to all of a server, in one exchange."""
    model = sw.Model({"layer{0,1}": (64, 64)}, "bfloat16")
    server = sw.Rules(sw.Mesh({"tp": 4}, range(4, 8)), "_[{tp}]")
    weights = sw.sync(model, sw.Rules("a=2", STAGES), server)
    assert str(weights) == exactly(
        """
        2 tensors of 1 kind, 16,384 bytes, from 4 devices to 4 devices
        source devices                 0-3
        target devices                 4-7
        received by the busiest device 4,096 bytes, the least possible
        sent by the busiest device     4,096 bytes
        received by all devices        16,384 bytes
        in flight on a device at most  4,112 bytes of 1,073,741,824, in 1 bucket
        the first tensor of each kind, and the number of tensors:
          layer0                                                  2 x          8,192 bytes
        proved: every element of every target buffer is written once, from its own source element
                (2 tensors of 1 kind, 8,192 elements by 4 relays); none is redundant
        """
    )


def test_replicas_take_turns() -> None:
    """Replicas send alike over members; large boxes are cut, so that they do for one too."""
    source = sw.Rules("dp=4,tp=2", "_[{tp}]")
    target = sw.Rules(sw.Mesh({"one": 1}, [9]), "_")
    plan = sw.sync(sw.Model({"w{0..7}": (8, 2)}, "float32"), source, target).plan
    assert {*plan.sent.values()} == {64}
    plan = sw.sync(sw.Model({"w": (512, 512)}, "float32"), source, target).plan
    assert {*plan.sent.values()} == {1 << 17}


def test_a_limit() -> None:
    """No bucket has more than half the limit on a device; pieces of a tensor make it so."""
    model = sw.Model({"big": (64, 64), "w{0..9}": (8, 8)}, "float32")
    target = sw.Rules(sw.Mesh({"b": 2}, [4, 5]), "_[{}, {b}]")
    plan = sw.sync(model, sw.Rules("a=4", "_[{a}]"), target, memory_limit=2048).plan
    assert plan.peak <= 2048
    assert max(plan.buckets.pieces) > 8
    assert plan.data["buckets"][-1] == sum(plan.buckets.pieces)
    prove(plan)
    assert message(
        lambda: sw.sync(model, sw.Rules("a=4", "_[{a}]"), target, memory_limit=100).plan.peak
    ) == exactly(
        """
        memory_limit: the limit must have room for two buckets, each with an element of every \
message of a tensor
        got: 100 bytes, too few for big
        expected: at least 192 bytes
        """
    )


MODEL = sw.Model({"layers.{0,1}.{q,k}": (8, 4), "layers.{0,1}.norm": (4,)}, "bfloat16")
WRONG = (
    (
        {"*.q": "_"},
        """
        source: every tensor of a model must match a rule
        got: layers.0.k, layers.1.k, layers.0.norm, layers.1.norm
        expected: a rule for them, for example "*" = "_", which stores each tensor whole
        """,
    ),
    (
        {"*": "_", "*.norm": "_"},
        """
        source: a rule must match a tensor that no earlier rule matches
        got: *.norm
        expected: a name of the model, such as layers.0.q
        """,
    ),
    (
        {"*.w": "_", "*": "_"},
        """
        source: a rule must match a tensor; did you mean *.q?
        got: *.w
        expected: a name of the model, such as layers.0.q
        """,
    ),
    (
        {"*.nrom": "_", "*": "_"},
        """
        source: a rule must match a tensor; did you mean *.norm?
        got: *.nrom
        expected: a name of the model, such as layers.0.q
        """,
    ),
    (
        {"layer.{0,1}.norm": "_", "*": "_"},
        """
        source: a rule must match a tensor; did you mean layers.*.norm?
        got: layer.{0,1}.norm
        expected: a name of the model, such as layers.0.q
        """,
    ),
    (
        {"*.qkv": "stack(0, *.q, *.v)", "*": "_"},
        """
        source, *.qkv: the parts of a buffer must be tensors of the model; did you mean layers.0.q?
        got: layers.0.v
        expected: a name of the model, in a rule that makes layers.0.q
        """,
    ),
    (
        {"*.k": "_", "*.qk": "stack(0, *.q, *.k)", "*": "_"},
        """
        source, *.qk: a tensor must be in only one buffer, unless its rule has `also`
        got: layers.0.k, already stored by *.k
        expected: the rules of stacks before those of single tensors, or also = true
        """,
    ),
    (
        {"qk": "stack(0, *.q, *.k)", "*": "_"},
        """
        source: a tensor in a layout must have one star (*) for each wildcard of its rule
        got: *.q in a rule for qk
        expected: a name with 0 stars
        """,
    ),
    (
        {"*": {"layout": "_", "at": {"tp": "$1 // 0"}}},
        """
        source, *, at tp: a position must be computed from integers and $1, $2, … with + - * // %
        got: $1 // 0 for layers.0.q
        expected: $2 // 4, if the second wildcard matches a number
        """,
    ),
    (
        {"layers.*.*": {"layout": "_", "at": {"tp": "$1 * 2"}}},
        """
        source, layers.*.*, at tp: a position must exist along its axis
        got: 2 for layers.1.q
        expected: 0 to 1
        """,
    ),
    (
        {"*.norm": "_[{}, {tp}]", "*": "_"},
        """
        source, layers.0.norm: a part must not have more dimensions than its tensor
          layers.0.norm[{}, {"tp"}]
                            ^^^^^^
        got: 2 dimensions of layers.0.norm
        expected: at most 1
        """,
    ),
    (
        {"*.norm": "_[0:2 {}]", "*": "_"},
        """
        source, layers.0.norm: every element of a tensor must be on at least one device
        got: elements 2 to 4 of dimension 0 of layers.0.norm on no device
        expected: shards, parts or table entries that include them
        """,
    ),
    (
        {"/layers[.](.*)[.](/": "_"},
        """
        the regular expression is invalid: missing ), unterminated subpattern
        got: /layers[.](.*)[.](/
        expected: an expression for Python's re, such as /layers[.]([0-9]+)[.]w/
        """,
    ),
)


@pytest.mark.parametrize(("rules", "said"), WRONG)
def test_wrong_rules(rules: dict[str, object], said: str) -> None:
    assert message(lambda: sw.sync(MODEL, sw.Rules("tp=2", rules), sw.Rules("tp=2", "_"))) == (
        exactly(said)
    )


def test_at_most_ten_names_are_listed() -> None:
    model = sw.Model({"w{0..99}": (4,)}, "float32")
    side = sw.Rules("tp=2", {"w0": "_"})
    assert "w1, w2, w3, w4, w5, w6, w7, w8, w9, w10 and 89 more" in message(
        lambda: sw.sync(model, side, side)
    )


def test_rules_place_tensors() -> None:
    """Experts by their number, a tensor on one device, another order of devices, a second copy."""
    model = sw.Model({"e.{0..7}.w": (4, 2), "head": (6, 2), "table": (6, 2)}, "float32")
    source = sw.Rules(
        sw.Mesh({"ep": 4, "tp": 2}, [7, 6, 5, 4, 3, 2, 1, 0]),
        {
            "e.*.w": {"layout": "_[{tp}]", "at": {"ep": "$1 // 2"}},
            "head": {"layout": "_", "at": {"ep": 3, "tp": 1}},
            "table": {"layout": "_[{ep}]", "at": {"ep": [0, 2], "tp": 0}},
        },
    )
    target = sw.Rules(
        "ep=8",
        {
            "e.*.w": {"layout": "_", "at": {"ep": "$1"}},
            "/(head|table)/": "_[{ep}]",
            "tied": {"layout": "stack(1, table, head)", "also": True},
        },
    )
    weights = sw.sync(model, source, target)
    whole = {
        name: np.arange(tensor.shape[0] * 2, dtype="int32").reshape(tensor.shape) + 100 * n
        for n, (name, tensor) in enumerate(model.tensors.items())
    }
    held: dict[int, dict[str, np.ndarray]] = {device: {} for device in range(8)}
    for n in range(8):
        for half in (0, 1):
            held[7 - 2 * (n // 2) - half][f"e.{n}.w"] = whole[f"e.{n}.w"][2 * half : 2 * half + 2]
    held[0]["head"] = whole["head"]
    held[7]["table"], held[3]["table"] = whole["table"][:3], whole["table"][3:]
    got = weights.local(held)
    for device in range(8):
        np.testing.assert_array_equal(got[device][f"e.{device}.w"], whole[f"e.{device}.w"])
        np.testing.assert_array_equal(got[device]["head"], whole["head"][device : device + 1])
        tied = np.concatenate([whole["table"], whole["head"]], axis=1)
        np.testing.assert_array_equal(got[device]["tied"], tied)
    assert weights.proof.tensors == 12
    assert message(lambda: weights.local({})) == exactly(
        """
        device 0: a device must have every buffer of its layout
        got: nothing
        expected: head
        """
    )
    held[0]["head"] = held[0]["head"].astype("float64")
    assert message(lambda: weights.local(held)) == exactly(
        """
        device 0, head: a buffer must have the dtype of its tensor
        got: float64
        expected: float32, or 32-bit integers with the same bits
        """
    )


def test_models_from_what_has_tensors(tmp_path: Path) -> None:
    tree = {"layers": [{"w": np.zeros((2, 3), "float32")}] * 2, "norm": np.zeros(4, "float16")}
    model = sw.Model.from_pytree(tree)
    assert model == sw.Model(
        {"layers.{0,1}.w": {"shape": (2, 3), "dtype": "F32"}, "norm": np.zeros(4, "float16")}
    )
    header = json.dumps({"norm": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}})
    data = len(header).to_bytes(8, "little") + header.encode()
    (tmp_path / "a.safetensors").write_bytes(data + bytes(8))
    assert sw.Model.from_safetensors(tmp_path) == sw.Model({"norm": [4]}, "bfloat16")
    assert message(lambda: sw.Model.from_safetensors(__file__)).startswith(
        f"{__file__}: the file must be in the safetensors format"
    )
    assert message(lambda: sw.Model({"w": np.arange})) == exactly(
        """
        w: a tensor must have a shape and a dtype
        got: <built-in function arange>
        expected: an array, a tensor or its shape
        """
    )
    twice = {"a.b": np.zeros(2), "a": {"b": np.zeros(3)}}
    assert message(lambda: sw.Model.from_pytree(twice)) == exactly(
        """
        two leaves of a tree must not have the same name (their keys, joined by dots)
        got: a.b
        expected: keys without dots
        """
    )
    assert message(lambda: sw.Model({"w": (4, 4)}, "int4")) == exactly(
        """
        w: the dtype must fill whole bytes; two elements of this dtype share a byte
        got: 'int4'
        expected: uint8, with half as many columns
        """
    )
    assert message(lambda: sw.Model({"w": (4, 4), "{w,v}": (4,)}, "float32")) == exactly(
        """
        {w,v}: two keys must not give the same tensor
        got: w again
        expected: each name in only one key
        """
    )


def test_a_learned_side() -> None:
    """A stored layout is a side: its buffers have the names of tensors in them."""
    tensors = {"q": (8, 4), "k": (4, 4)}
    stored = sw.Stored("tp=2", tensors, {"qk": sw.stack(0, q="tp", k="tp")}, "bfloat16")
    weights = sw.sync(sw.Model(tensors, "bfloat16"), stored, sw.Rules("tp=2", "_[{}, {tp}]"))
    assert weights.plan.total == 48
    assert message(
        lambda: sw.sync(sw.Model(tensors, "bfloat16"), stored, "tp")  # type: ignore[arg-type]
    ).startswith("target: a side of a model must be an sw.Rules")


CORPUS = {
    "llama3_70b": (723, 9, 17_640_734_720, 2_258_014_044_160),
    "qwen3_235b": (36_945, 12, 7_622_122_496, 975_631_679_488),
    "deepseek_v3": (45_395, 20, 20_322_557_952, 2_601_287_417_856),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3_70b", *marked(["qwen3_235b", "deepseek_v3"])])
def test_whole_models_at_full_size(name: str) -> None:
    """Planned and proved, at the fewest bytes, from 256 devices to 128 others."""
    models = read_config(ROOT / "corpus/models/models.toml").models
    said = next(each for each in models if each.name == name)
    weights = sw.sync(said.model(), *said.rules())
    plan = weights.plan
    assert (len(plan.sent), len(plan.received)) == (256, 128)
    proof = weights.proof
    assert (proof.tensors, proof.kinds, plan.received_max, plan.total) == CORPUS[name]
    assert plan.peak <= plan.memory_limit


@pytest.mark.slow
@pytest.mark.parametrize("number", [*range(4), *marked(range(4, 40))])
def test_torch_moves_models_at_random(number: int) -> None:
    """The runtime of torch, in one process, moves what the data says."""
    torch, case = pytest.importorskip("torch"), model_case(number)
    data = sw.sync(case.model(), case.rules("source"), case.rules("target")).data
    held = {
        device: {name: torch.from_numpy(each.copy()) for name, each in buffers.items()}
        for device, buffers in case.held("source").items()
    }
    used = {
        (device, buffer)
        for _, source, _, _, _, _, (buffer,), _ in data["members"]
        for device in data["places"][source]
    }
    given_ = {
        device: {name: each for name, each in buffers.items() if (device, name) in used}
        for device, buffers in held.items()
        if any((device, name) in used for name in buffers)
    }
    from shardwright.templates.support.torch_model import Weights

    got = Weights(data).local(given_)
    numpy = {d: {name: each.numpy() for name, each in of.items()} for d, of in got.items()}
    assert_same(numpy, case.held("target"))
